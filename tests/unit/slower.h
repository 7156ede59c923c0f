/* How many times longer a test's programs may take than plain ones: sanitizers slow the service's side down, not the clock. */
#ifndef TEST_SLOWER_H
#define TEST_SLOWER_H
#ifdef __SANITIZE_THREAD__
enum { SLOWER = 20 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SLOWER = 4 };
#else
enum { SLOWER = 1 };
#endif
#endif
