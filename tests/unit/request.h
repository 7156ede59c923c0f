/* A request from an expression and its inputs as text. */
#ifndef REQUEST_H
#define REQUEST_H
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "kiln.h"

/* In a; the test fails where it is refused. */
static inline kiln_request *request(kiln_arena *a, const char *expr, const char *inputs)
{
    kiln_request *r = NULL;
    kiln_diag d = {0};
    kiln_bytes text = {expr, strlen(expr)}, list = {inputs, strlen(inputs)};
    if (kiln_request_text(a, text, list, NULL, &r, &d)) fail_msg("%s: %s", expr, d.message);
    return r;
}

#endif
