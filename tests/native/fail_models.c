/* fail_models FILE...: load and run saved models while allocations fail, one at a time: the n-th
 * for n up to 2,000, then the first of each place in the source that allocates. Each time the
 * answer is a typed error or the right result, the same VM's next run is right, and (the sanitizer
 * sees to that) nothing leaks. Prints the counts, and names the places that were not reached. Only
 * in NVM_TEST builds.
 */
#include <math.h>

#include "../fuzz/arguments.h"
#include "fail_scenarios.h"
#include "threads.h"

#ifdef NVM_TEST
enum { MOST = 2000, VALUES = 4096 };

static scenario scenarios[MAX_SCENARIOS];
static size_t n_scenarios;
static unsigned long runs, refusals, absorbed;

static void outcome(const scenario *s, nvm_status status, const outputs *got) {
  runs++;
  const int typed =
      status == NVM_OUT_OF_MEMORY || status == NVM_FILE_ERROR; /* no mapping, no file */
  if (typed) refusals++;
  CHECK(status == NVM_OK || typed);
  if (status != NVM_OK && !typed)
    fprintf(stderr, "%s: status %d, %s\n", s->name, status, nvm_last_error()->message);
  if (status == NVM_OK) CHECK(same_outputs(got, &s->expected));
}

static nvm_status run(const scenario *s) {
  outputs got = {0};
  const nvm_status status = s->run(s, &got);
  outcome(s, status, &got);
  return status;
}

/* Returns how many allocations the scenario makes, at most MOST. */
static int by_number(const scenario *s) {
  for (int n = 1; n <= MOST; n++) {
    nvm_test_fail_allocation(n);
    const nvm_status status = run(s);
    const int64_t left = nvm_test_fail_allocation(0);
    if (left > 0) return n - 1; /* it needed fewer */
    if (status == NVM_OK) absorbed++;
    CHECK(run(s) == NVM_OK);
  }
  return MOST;
}

static void by_site(nvm_alloc_site *site) {
  for (size_t i = 0; i < n_scenarios && atomic_load(&site->failed) == 0; i++) {
    nvm_threads_shutdown(); /* so that threads are made anew */
    nvm_test_fail_site(site);
    (void)run(&scenarios[i]);
    nvm_test_fail_site(NULL);
    if (atomic_load(&site->failed)) CHECK(run(&scenarios[i]) == NVM_OK);
  }
}

/* Nowhere to put machine code, neither in memory nor on disk: the IR interpreter runs. */
static void without_machine_code(void) {
  for (size_t i = 0; i < n_scenarios; i++) {
    if (scenarios[i].path == NULL || scenarios[i].flags != 0) continue;
    nvm_test_fail_file("native_code.c");
    CHECK(run(&scenarios[i]) == NVM_OK);
    nvm_test_fail_file(NULL);
    CHECK(run(&scenarios[i]) == NVM_OK);
  }
}

int main(int argc, char **argv) {
  n_scenarios = make_scenarios(scenarios, argv + 1, argc - 1);
  for (size_t i = 0; i < n_scenarios; i++) {
    scenario *s = &scenarios[i];
    CHECK_STATUS(s->run(s, &s->expected), NVM_OK);
  }
  for (size_t i = 0; i < n_scenarios && failures == 0; i++)
    printf("%s: %d allocations\n", scenarios[i].name, by_number(&scenarios[i]));
  without_machine_code();
  size_t n_sites, missed = 0;
  nvm_alloc_site *sites = nvm_test_sites(&n_sites);
  for (size_t i = 0; i < n_sites && failures == 0; i++) by_site(&sites[i]);
  for (size_t i = 0; i < n_sites; i++) {
    if (atomic_load(&sites[i].failed)) continue;
    missed++;
    printf("not reached: %s:%d\n", sites[i].file, sites[i].line);
  }
  printf("%zu sites, %zu not reached; %lu runs, %lu refused, %lu done without\n", n_sites, missed,
         runs, refusals, absorbed);
  return failures != 0;
}
#else
int main(void) { return 0; }
#endif
