/* kiln-worker run: one process of a fleet that claims jobs and does them. */
#ifndef WORKERS_FLEET_H
#define WORKERS_FLEET_H

int fleet_main(int argc, char **argv); /* argv behind "run"; the exit status */
int fleet_card(int argc, char **argv); /* behind "card": prints what enrols this worker as a builder */
#endif
