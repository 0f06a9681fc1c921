// SPDX-License-Identifier: Apache-2.0
/*
 * Probes the allocators of real Java and Go programs, and checks what they allocate by class and
 * type. The bytes are compared with those that the JVM itself reports for its thread. For a Go
 * program without a heap profile they must be exact. Runs with every JDK and Go of this machine.
 */
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/alloc/testalloc.h"
#include "node/probe/probe.h"
#include "node/runtime/testlive.h"

#define WAIT_NS	  (120 * NSEC_PER_SEC)
#define FILES_MAX 64

static char dir[] = "/tmp/podflame-objects-XXXXXX";

static const char java_program[] =
	"import java.lang.management.ManagementFactory;\n"
	"public class Objects {\n"
	"	static class Node { long a, b, c; Node next; }\n"
	"	static volatile Object sink;\n"
	"	static com.sun.management.ThreadMXBean threads =\n"
	"		(com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();\n"
	"	static long last;\n"
	"	static long allocated() {\n"
	"		return threads.getThreadAllocatedBytes(Thread.currentThread().getId());\n"
	"	}\n"
	"	static void tell(String what) {\n"
	"		long now = allocated();\n"
	"		System.out.println(what + \" \" + (now - last));\n"
	"		last = allocated();\n"
	"	}\n"
	"	public static void main(String[] a) throws Exception {\n"
	"		allocated();\n"
	"		System.out.println(\"ready\");\n"
	"		System.in.read();\n"
	"		last = allocated();\n"
	"		for (int i = 0; i < 5000000; i++) sink = new Node();\n"
	"		tell(\"Objects$Node\");\n"
	"		for (int i = 0; i < 200000; i++) sink = new short[500];\n"
	"		tell(\"short[]\");\n"
	"		for (int i = 0; i < 400000; i++) sink = new Node[100];\n"
	"		tell(\"Objects$Node[]\");\n"
	"		for (int i = 0; i < 40; i++) sink = new int[1 << 20];\n"
	"		tell(\"int[]\");\n"
	"		System.out.println(\"end\");\n"
	"		System.in.read();\n"
	"	}\n"
	"}\n";

static const char go_program[] =
	"package main\n"
	"import (\"bufio\"; \"fmt\"; \"os\")\n"
	"type pair struct { next *pair; value [2]uint64 }\n"
	"type small struct { a uint32 }\n"
	"type counter int64\n"
	"type page [8192]byte\n"
	"type links [100]*pair\n"
	"var sink any\n"
	"var p *pair; var s *small; var c []counter; var q *page; var l *links; var r []*links\n"
	"func main() {\n"
	"	in := bufio.NewReader(os.Stdin)\n"
	"	fmt.Println(\"ready\")\n"
	"	in.ReadByte()\n"
	"	for i := 0; i < 1000; i++ {\n"
	"		p = new(pair); s = new(small); c = make([]counter, 100 + i % 2)\n"
	"		q = new(page); l = new(links); r = make([]*links, 5)\n"
	"	}\n"
	"	fmt.Println(\"main.pair 24000\\nmain.small 4000\\nmain.counter 804000\\nmain.page "
	"8192000\")\n"
	"	fmt.Println(\"main.links 800000\\n*main.links 40000\")\n"
	"	fmt.Println(\"end\")\n"
	"	in.ReadByte()\n"
	"}\n";

/* ---- sums by name ---- */

struct object {
	struct runtime_words words;
	enum pf_runtime_kind kind;
	uint64_t bytes;
};
struct scene {
	pid_t pid;
	FILE *to, *from;
	struct probes *p;
	struct raw_proc proc;
	bool known;
	struct alloc_process look;
	struct live_process live;
	struct alloc_sites *sites;
	struct attached *a;
	struct object *objects;
	size_t n, cap;
};

static void add_object(struct scene *s, const struct raw_frame *f, uint64_t bytes)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->objects[i].words.a == f->words[0]) {
			s->objects[i].bytes += bytes;
			return;
		}
	GROW(s->objects, s->n, s->cap);
	s->objects[s->n++] =
		(struct object){.words = {.type = f->type, .a = f->words[0], .b = f->words[1]},
				.kind = (enum pf_runtime_kind)f->runtime,
				.bytes = bytes};
}

static uint64_t bytes_of(struct scene *s, const char *name)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < s->n; i++) {
		struct runtime_ask a = {.kind = s->objects[i].kind, .frame = s->objects[i].words};

		assert_int_equal(live_resolve(&s->live, s->live.runtimes, &a, 1), 0);
		assert_int_equal(a.error, 0);
		assert_int_equal(a.names.n, 1);
		assert_int_equal(a.names.kind, FRAME_OBJECT);
		if (streq(a.names.items[0].name, name))
			bytes += s->objects[i].bytes;
		runtime_names_done(&a.names);
	}
	return bytes;
}

static void drain(struct scene *s)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(s->p, true, &d), 0);
	for (size_t i = 0; i < d->n_procs; i++)
		if ((pid_t)d->procs[i].tgid == s->pid) {
			s->proc = d->procs[i];
			s->known = true;
		}
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_stack *k = sample_drain_stack(d, d->samples[i].ustack);

		assert_int_equal(d->samples[i].tgid, s->pid);
		if (k && k->n && k->frames[0].runtime && k->frames[0].type == PF_TYPE_OBJECT)
			add_object(s, &k->frames[0], d->samples[i].value);
	}
	sample_drain_free(d);
}

/* ---- the program and its probes ---- */

static void start(struct scene *s, const char *line)
{
	_cleanup_free_ char *command = xasprintf("cd %s && exec %s", dir, line);
	int in[2], out[2];

	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	s->pid = fork();
	if (s->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		closefrom(3);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	assert_true(s->pid > 0);
	close(in[0]);
	close(out[1]);
	s->to = fdopen(in[1], "w");
	s->from = fdopen(out[0], "r");
}

static bool read_line(struct scene *s, char line[256])
{
	assert_non_null(fgets(line, 256, s->from));
	line[strcspn(line, "\n")] = '\0';
	return !streq(line, "end");
}

static void open_probes(struct scene *s)
{
	const struct probe_config c = {.use_list = true, .max_sample_hz = 99};
	struct listed_process l = {.id.tgid = s->pid,
				   .event_mask = 1u << EVENT_MEM_ALLOC,
				   .settings = {.alloc_sample_bytes = 1}};
	uint64_t end = now_mono_ns() + WAIT_NS;
	struct field_error err = {0};
	int r = probes_new(&c, &s->p, &err);

	if (r == -EPERM || r == -EACCES) {
		print_message("skipped: BPF is not permitted here (%s)\n", err.reason);
		skip();
	}
	assert_int_equal(r, 0);
	assert_int_equal(proc_start_boottime((uint32_t)s->pid, &l.id.start_boottime_ns), 0);
	assert_int_equal(probes_list(s->p, &l, 1), 0);
	while (!s->known && now_mono_ns() < end) {
		assert_int_equal(probes_announce(s->p), 0);
		drain(s);
	}
	assert_true(s->known);
}

static void attach(struct scene *s)
{
	struct pf_mem_proc proc = {.event_mask = 1u << PF_EVENT_MEM_ALLOC,
				   .exec_id = s->proc.exec_id,
				   .n_inner = (uint32_t)s->sites->n_inner};
	struct probe_site *sites = xcalloc(s->sites->n, sizeof(*sites));
	struct probe_file files[FILES_MAX];
	struct probes_refused refused = {0};
	size_t n = 0;

	memcpy(proc.inner, s->sites->inner, sizeof(proc.inner));
	for (size_t i = 0; i < s->sites->n; i++) {
		const struct alloc_site *a = &s->sites->items[i];
		int fd = s->look.maps->items[a->mapping].fd;

		if (n == 0 || files[n - 1].fd != fd)
			files[n++] = (struct probe_file){.fd = fd, .sites = &sites[i]};
		assert_true(n < FILES_MAX);
		files[n - 1].n_sites++;
		sites[i].file_offset = a->file_offset;
		memcpy(&sites[i].cookie, &a->site, sizeof(a->site));
	}
	assert_int_equal(probes_attach(s->p, PROBES_MEMORY,
				       (struct process_id){s->proc.start_boottime_ns, s->pid},
				       &proc, files, n, &s->a, &refused),
			 0);
	assert_int_equal(refused.n, 0);
	free(sites);
}

/*
 * Starts the program and attaches probes to its sites. Returns false if it cannot be probed, and
 * prints the reason.
 */
static bool open_scene(struct scene *s, const char *line)
{
	struct runtime_look look;
	char text[256];

	*s = (struct scene){0};
	start(s, line);
	assert_true(read_line(s, text));
	assert_string_equal(text, "ready");
	alloc_process_open(&s->look, s->pid);
	look = alloc_process_look(&s->look);
	assert_int_equal(alloc_sites_find(&look, 1u << PF_EVENT_MEM_ALLOC, &s->sites), 0);
	if (*s->sites->problem)
		return false;
	live_learn(&s->live, s->pid);
	open_probes(s);
	attach(s);
	return true;
}

static void close_scene(struct scene *s)
{
	probes_detach(s->p, s->a);
	probes_free(s->p);
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	fclose(s->to);
	fclose(s->from);
	alloc_sites_free(s->sites);
	alloc_process_close(&s->look);
	if (s->live.maps)
		live_forget(&s->live);
	free(s->objects);
}

struct claim {
	char name[64];
	unsigned long bytes;
};
/*
 * Lets the program allocate. Fills ret with what the program reports to have allocated, and returns
 * the number of entries.
 */
static size_t work(struct scene *s, struct claim ret[8])
{
	char line[256];
	size_t n = 0;

	fputs("g", s->to); /* a first character makes the program work, a second one makes it end */
	fflush(s->to);
	for (; read_line(s, line); n++) {
		assert_true(n < 8);
		assert_int_equal(sscanf(line, "%63s %lu", ret[n].name, &ret[n].bytes), 2);
	}
	drain(s);
	drain(s);
	return n;
}

/* ---- Java ---- */

static void check_java(const char *java)
{
	_cleanup_free_ char *line = xasprintf("%s -Xmx256m -cp %s Objects", java, dir);
	struct claim claims[8];
	struct scene s;
	size_t n;

	if (!open_scene(&s, line)) {
		print_message("%s: %s\n", java, s.sites->problem);
		assert_non_null(strstr(s.sites->problem, "libjvm.so has no .symtab"));
		close_scene(&s);
		return;
	}
	print_message("%s: %s\n", java, live_find(&s.live, PF_RUNTIME_JVM)->version);
	n = work(&s, claims);
	assert_int_equal(n, 4);
	for (size_t i = 0; i < n; i++) {
		double is = (double)bytes_of(&s, claims[i].name), should = (double)claims[i].bytes;

		print_message("  %-16s %10.0f of %10.0f\n", claims[i].name, is, should);
		/*
		 * the bytes of one or two TLABs may count for the class that was allocated before
		 */
		assert_true(is > 0.95 * should && is < 1.05 * should);
	}
	close_scene(&s);
}

static void check_javas(const char *pattern)
{
	glob_t g = {0};

	(void)glob(pattern, 0, NULL, &g);
	for (size_t i = 0; i < g.gl_pathc; i++)
		check_java(g.gl_pathv[i]);
	globfree(&g);
}

static void java_objects(void **state)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	_cleanup_free_ char *fetched = xasprintf("%s%s/podflame/jdk-*/bin/java",
						 cache ? cache : home, cache ? "" : "/.cache");
	_cleanup_free_ char *compile =
		xasprintf("cd %s && javac --release 8 Objects.java 2>/dev/null", dir);

	(void)state;
	if (system(compile) != 0) {
		print_message("no javac\n");
		skip();
	}
	check_javas("/usr/lib/jvm/*-amd64/bin/java");
	check_javas(fetched);
}

/* ---- Go ---- */

static void check_go(const char *environment, const char *flags)
{
	_cleanup_free_ char *build = xasprintf("cd %s && env %s go build %s -o program main.go "
					       "2>build.log || { cat build.log; false; }",
					       dir, environment, flags);
	struct claim claims[8];
	struct scene s;
	size_t n;

	print_message("%s go build %s\n", environment, flags);
	assert_int_equal(system(build), 0);
	if (!open_scene(&s, "./program"))
		fail_msg("%s", s.sites->problem);
	n = work(&s, claims);
	assert_int_equal(n, 6);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(bytes_of(&s, claims[i].name), claims[i].bytes);
	close_scene(&s);
}

static void go_objects(void **state)
{
	(void)state;
	if (system("go version >/dev/null 2>&1") != 0) {
		print_message("no go\n");
		skip();
	}
	check_go("GOFLAGS=", "");
	check_go("GOFLAGS=", "-ldflags='-s -w'");
	check_go("GOFLAGS=", "-buildmode=pie");
	if (!getenv("LONG")) {
		print_message("LONG is not set: no other versions of Go\n");
		return;
	}
	check_go("GOTOOLCHAIN=go1.18.10", "");
	check_go("GOTOOLCHAIN=go1.22.0", "");
	check_go("GOTOOLCHAIN=go1.27.0", "");
	check_go("GOTOOLCHAIN=go1.27.0", "-ldflags='-s -w'");
}

static int write_to(const char *name, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);
	FILE *f = fopen(path, "w");

	if (!f)
		return -1;
	fputs(text, f);
	return fclose(f);
}

static int set_up(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	return write_to("Objects.java", java_program) || write_to("main.go", go_program) ||
			       write_to("go.mod", "module program\n\ngo 1.18\n")
		       ? -1
		       : 0;
}

static int tear_down(void **state)
{
	_cleanup_free_ char *command = xasprintf("rm -r %s", dir);

	(void)state;
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(java_objects),
		cmocka_unit_test(go_objects),
	};

	return cmocka_run_group_tests_name("objects, live", tests, set_up, tear_down);
}
