/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what the perf map of this process costs: a small map that is new, a large one, the lines
 * that are added to it, and a look at a file that did not grow. Also measures the memory of the
 * agent and of the children that read the file.
 */
#include "lib/base/bench.h"
#include "lib/base/testchild.h"
#include "node/runtime/perfmap/perfmap.h"
#include "node/runtime/reader.h"

#include <fcntl.h>
#include <unistd.h>

#define ROUNDS	    7
#define LARGE_LINES 120000
#define ADDED_LINES 200

static char path[64];
static struct process_id self;
static unsigned n_written;

static void add_lines(unsigned n)
{
	FILE *f = fopen(path, "ae");

	if (!f)
		bench_die(path, errno);
	for (unsigned i = 0; i < n; i++, n_written++)
		fprintf(f, "7f%08x 40 JS:*function%u file:///srv/app/lib/module%u.mjs:%u:7\n",
			n_written * 64, n_written, n_written % 500, n_written % 3000);
	fclose(f);
}

static void write_anew(unsigned n)
{
	unlink(path);
	n_written = 0;
	add_lines(n);
}

static void read_all(struct perf_file *f)
{
	int r;

	while ((r = runtime_perf_file_read(f)) == -EAGAIN)
		;
	if (r < 0)
		bench_die("perf map", r);
	if (runtime_perf_map_n(f->map) != n_written)
		bench_die("functions", -EBADMSG);
}

static void begin(struct perf_file *f)
{
	int r = runtime_perf_file_init(self, f);

	if (r < 0)
		bench_die("perf file", r);
}

struct costs {
	double ms[ROUNDS], cpu_ms[ROUNDS];
};

static void measure(struct costs *c, size_t round, struct perf_file *f)
{
	uint64_t from = now_mono_ns(), cpu = own_cpu_ns();

	read_all(f);
	c->ms[round] = (double)(now_mono_ns() - from) / NSEC_PER_MSEC;
	c->cpu_ms[round] = (double)(own_cpu_ns() - cpu) / NSEC_PER_MSEC;
}

static void report(const char *what, struct costs *c)
{
	_cleanup_free_ char *name = xasprintf("perf_map_%s", what);
	_cleanup_free_ char *cpu = xasprintf("perf_map_%s_agent_cpu", what);

	bench_rounds(name, c->ms, ROUNDS, "ms", "", "");
	bench_rounds(cpu, c->cpu_ms, ROUNDS, "ms", "", "");
}

static double rss_kib(pid_t pid)
{
	_cleanup_free_ char *status = NULL, *file = xasprintf("/proc/%d/status", pid);
	const char *at;

	if (file_read(AT_FDCWD, file, 65536, &status, NULL) < 0)
		return 0;
	at = strstr(status, "\nRssAnon:");
	return at ? strtod(at + strlen("\nRssAnon:"), NULL) : 0;
}

int main(void)
{
	struct costs first, small, large, added, unchanged;
	struct perf_file f;

	self.tgid = getpid();
	if (proc_start_boottime(getpid(), &self.start_boottime_ns) < 0)
		bench_die("own start", -ESRCH);
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	for (size_t i = 0; i < ROUNDS; i++) {
		runtime_reader_use(NULL, NULL); /* no child runs yet */
		begin(&f);
		write_anew(100);
		measure(&first, i, &f);
		runtime_perf_file_done(&f);
		begin(&f);
		write_anew(100);
		measure(&small, i, &f);
		runtime_perf_file_done(&f);
		begin(&f);
		write_anew(LARGE_LINES);
		measure(&large, i, &f);
		add_lines(ADDED_LINES);
		measure(&added, i, &f);
		bench_nap(1100);
		measure(&unchanged, i, &f);
		measure(&unchanged, i, &f);
		if (i + 1 < ROUNDS)
			runtime_perf_file_done(&f);
	}
	report("of_100_lines_first_of_namespace", &first);
	report("of_100_lines", &small);
	report("of_120000_lines", &large);
	report("with_200_more_lines", &added);
	report("unchanged", &unchanged);
	bench_report("perf_map_agent_anonymous_memory", rss_kib(getpid()), "KiB", "");
	bench_report("perf_map_child_anonymous_memory", rss_kib(testchild_pid("podflame-reader")),
		     "KiB", "");
	runtime_perf_file_done(&f);
	unlink(path);
	return 0;
}
