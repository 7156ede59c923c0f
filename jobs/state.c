/* The states, moves and kinds of jobs as tables. */
#include <string.h>
#include "jobs/state.h"

static const struct { const char *text; bool live, leased; } states[] = {
#define X(NAME, text, live, leased, claimable) {text, live, leased},
#include "jobs/states.def"
#undef X
};
static const struct { const char *text; bool background; } kinds[] = {
#define X(NAME, text, background, meaning) {text, background},
#include "jobs/kinds.def"
#undef X
};
static const struct { enum jobs_state from; enum jobs_move move; enum jobs_state to; } moves[] = {
#define X(FROM, EVENT, TO) {JOBS_##FROM, JOBS_DO_##EVENT, JOBS_##TO},
#include "jobs/moves.def"
#undef X
};

const char *jobs_state_text(enum jobs_state s) { return (unsigned)s < JOBS_STATES ? states[s].text : "unknown"; }
bool jobs_kind_background(enum jobs_kind k) { return (unsigned)k < JOBS_KINDS && kinds[k].background; }
bool jobs_state_live(enum jobs_state s) { return (unsigned)s < JOBS_STATES && states[s].live; }
bool jobs_state_leased(enum jobs_state s) { return (unsigned)s < JOBS_STATES && states[s].leased; }
const char *jobs_kind_text(enum jobs_kind k) { return (unsigned)k < JOBS_KINDS ? kinds[k].text : "unknown"; }

bool jobs_kind_find(const char *text, enum jobs_kind *out)
{
    for (int i = 0; i < JOBS_KINDS; i++) {
        if (strcmp(kinds[i].text, text)) continue;
        *out = (enum jobs_kind)i;
        return true;
    }
    return false;
}

enum jobs_state jobs_after(enum jobs_state from, enum jobs_move move)
{
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        if (moves[i].from == from && moves[i].move == move) return moves[i].to;
    return JOBS_STATES;
}
