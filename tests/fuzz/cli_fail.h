/* The command line's message, formatted and dropped: what a fuzz target that includes one of its files links with. */
#include <stdarg.h>
#include <stdio.h>

int cli_fail(int status, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return status;
}
