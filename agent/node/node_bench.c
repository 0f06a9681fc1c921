/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node pays: CPU and memory of `podflame local` (agent and hub in one process, its
 * parse child too) with nothing selected, which leaves Total's ticks, and with 20 busy
 * processes at 99 Hz.
 * node_bench [PODFLAME]: default $BUILD/podflame. Needs root; takes a minute.
 */
#include "lib/base/bench.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BUSY	  20
#define SETTLE_MS 5000
#define WINDOW_MS 15000

static char dir[] = "/tmp/podflame-bench-XXXXXX";
static struct sockaddr_in api = {.sin_family = AF_INET};

/* A port that is free now. */
static void choose_port(void)
{
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t n = sizeof(api);

	api.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(fd, (void *)&api, n) || getsockname(fd, (void *)&api, &n))
		bench_die("a free port", errno);
}

/* A value of /metrics; -1 while nobody answers. */
static double metric(const char *name)
{
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	_cleanup_free_ char *key = xasprintf("\n%s ", name);
	static char text[1 << 20];
	size_t n = 0;
	ssize_t r;
	char *at;

	if (connect(fd, (void *)&api, sizeof(api)) ||
	    dprintf(fd, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") <
		    0)
		return -1;
	while (n < sizeof(text) - 1 && (r = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
		n += r;
	text[n] = '\0';
	at = strstr(text, key);
	return at ? strtod(at + strlen(key), NULL) : -1;
}

static pid_t start_agent(const char *program, const char *regex)
{
	_cleanup_free_ char *config = xasprintf("%s/config.yaml", dir);
	_cleanup_free_ char *text =
		xasprintf("kubernetes: \"off\"\napi: {port: %u}\nlog_level: error\nstatic_config:\n"
			  "  ebpf:\n    on-cpu-profile: {frequency: 99, regex: \"%s\"}\n",
			  ntohs(api.sin_port), regex);
	pid_t pid;
	int r = file_write_atomic(config, text, strlen(text), 0600);

	if (r)
		bench_die(config, r);
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	execl(program, "podflame", "local", "--config", config, "--data", dir, NULL);
	bench_die(program, errno);
}

static pid_t start_busy(void)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "pfbusy");
	setpriority(PRIO_PROCESS, 0, 10); /* the agent gets its CPU, as on a node with room */
	for (volatile unsigned long i = 0;; i++)
		;
}

struct use {
	double cpu_ns, rss_bytes;
};

static void add_use(pid_t pid, struct use *u)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/statm", pid), *statm = NULL;
	clockid_t clock;
	struct timespec t;
	unsigned long total, pages;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t) ||
	    file_read(-1, path, 4096, &statm, NULL) ||
	    sscanf(statm, "%lu %lu", &total, &pages) != 2)
		return;
	u->cpu_ns += t.tv_sec * 1e9 + t.tv_nsec;
	u->rss_bytes += (double)pages * sysconf(_SC_PAGESIZE);
}

/* Of a process and its children. */
static struct use use_of(pid_t pid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/task", pid);
	struct use u = {};
	struct dirent *e;
	DIR *d = opendir(path);

	add_use(pid, &u);
	while (d && (e = readdir(d))) {
		_cleanup_free_ char *name = xasprintf("%s/children", e->d_name), *pids = NULL;
		char *next;

		if (e->d_name[0] == '.' || file_read(dirfd(d), name, 65536, &pids, NULL))
			continue;
		for (char *at = pids; (pid = strtol(at, &next, 10)); at = next)
			add_use(pid, &u);
	}
	if (d)
		closedir(d);
	return u;
}

/* CPU in percent of a core, over a window after it has settled. */
static double bench_agent(const char *program, const char *regex, const char *what)
{
	_cleanup_free_ char *cpu = xasprintf("node.cpu_%s", what);
	_cleanup_free_ char *rss = xasprintf("node.rss_%s", what);
	_cleanup_free_ char *rate = xasprintf("node.samples_%s", what);
	pid_t pid = start_agent(program, regex);
	double samples, percent;
	struct use from, to;

	for (unsigned i = 0; metric("podflame_bpf_programs") <= 0; i++) {
		if (i == 300 || waitpid(pid, NULL, WNOHANG) == pid)
			bench_die("podflame did not start", ETIMEDOUT);
		bench_nap(100);
	}
	bench_nap(SETTLE_MS);
	from = use_of(pid);
	samples = metric("podflame_samples_folded_total");
	bench_nap(WINDOW_MS);
	to = use_of(pid);
	samples = metric("podflame_samples_folded_total") - samples;
	kill(pid, SIGTERM);
	waitpid(pid, NULL, 0);
	if (samples < 0)
		bench_die("podflame ended", ECHILD);
	percent = (to.cpu_ns - from.cpu_ns) / (WINDOW_MS * 1e6) * 100;
	bench_report(cpu, percent, "percent of a core", "otel-ebpf-profiler, whole machine: 1.5");
	bench_report(rss, to.rss_bytes / (1 << 20), "MiB", "otel-ebpf-profiler: 59");
	bench_report(rate, samples / (WINDOW_MS / 1000.0), "samples/s", "99 a busy core");
	return percent;
}

int main(int argc, char **argv)
{
	const char *build = getenv("BUILD");
	_cleanup_free_ char *built = xasprintf("%s/podflame", build ? build : "build");
	const char *program = argc > 1 ? argv[1] : built;
	pid_t busy[BUSY];
	double idle, selected;

	if (!mkdtemp(dir))
		bench_die(dir, errno);
	choose_port();
	for (int i = 0; i < BUSY; i++)
		busy[i] = start_busy();
	idle = bench_agent(program, "^nobody is called so$", "nothing_selected");
	selected = bench_agent(program, "^pfbusy$", "20_selected");
	for (int i = 0; i < BUSY; i++) {
		kill(busy[i], SIGKILL);
		waitpid(busy[i], NULL, 0);
	}
	bench_report("node.cpu_ratio", selected / idle, "times", "Total alone, same load");
	return execlp("rm", "rm", "-r", dir, NULL);
}
