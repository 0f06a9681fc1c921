/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame doctor --pid: a process: its identity, the runtimes in it, and the files that it has
 * mapped.
 */
#include "cli/doctor.h"

#include "cli/cli.h"
#include "node/runtime/runtime.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#define KERNEL_THREAD 0x00200000 /* PF_KTHREAD, include/linux/sched.h */
#define LEARN_TURNS   20	 /* tries of 100 ms each, because a runtime may just be starting */

/* ---- identity ---- */

static int read_proc(uint32_t pid, const char *what, char **ret)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/%s", pid, what);
	return file_read(AT_FDCWD, path, 1 << 20, ret, NULL);
}

static bool is_kernel_thread(const char *stat)
{
	const char *rest = strrchr(stat, ')');
	unsigned long flags;

	return rest && sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %lu", &flags) == 1 &&
	       flags & KERNEL_THREAD;
}

static char *problem_text(int error)
{
	switch (error) {
	case -ESRCH:
	case -ENOENT:
		return xstrdup("there is no such process");
	case -EPERM:
	case -EACCES:
		return xstrdup("no permission to read its mappings: run as root, or with "
			       "capability SYS_PTRACE");
	default:
		return xasprintf("cannot read its mappings: %s", strerror(-error));
	}
}

static char *status_field(const char *status, const char *name)
{
	const char *p = strstr(status, name);

	p = p ? p + strlen(name) : "";
	p += strspn(p, " \t");
	return xstrndup(p, strcspn(p, "\n"));
}

static void tell_process(struct doctor *d, uint64_t start_ns)
{
	_cleanup_free_ char *status = NULL, *name = NULL, *uids = NULL, *pids = NULL, *shown = NULL;
	_cleanup_free_ char *detail = NULL;
	const char *own;

	if (read_proc(d->pid, "status", &status) < 0)
		return;
	name = status_field(status, "Name:");
	shown = elf_text_clean(name);
	uids = status_field(status, "\nUid:");
	pids = status_field(status, "\nNSpid:");
	own = strrchr(pids, '\t');
	detail = xasprintf("%s, PID %" PRIu32 "%s%s, user %.*s, running for %" PRIu64 " s%s", shown,
			   d->pid, own ? ", in its own namespace " : "", own ? own + 1 : "",
			   (int)strcspn(uids, "\t"), uids,
			   (uint64_t)((now_boot_ns() - start_ns) / NSEC_PER_SEC),
			   proc_thread_lives(d->pid, d->pid) ? "" : ", its first thread has ended");
	cli_doctor_tell(d, "process", true, detail);
}

/* A line of /proc/PID/cgroup is a hierarchy: ID:CONTROLLERS:PATH. */
static void tell_container(struct doctor *d)
{
	_cleanup_free_ char *text = NULL, *detail = NULL, *path = NULL, *raw = NULL;
	_cleanup_close_ int thread_fd = -1;
	struct cgroup_ref ref = {0};
	char *save = NULL;
	json_t *c;

	/*
	 * Reads the cgroup of a thread that still runs: with cgroup v1, a thread that has ended
	 * shows no cgroup.
	 */
	if (proc_open_living(d->pid, &thread_fd) < 0 ||
	    file_read(thread_fd, "cgroup", 1 << 20, &text, NULL) < 0)
		return;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		const char *p = strchr(line, ':');

		p = p ? strchr(p + 1, ':') : NULL;
		if (!p || (raw && proc_cgroup_parse_path(p + 1, &ref) < 0))
			continue;
		free(raw);
		raw = xstrdup(p + 1);
		if (proc_cgroup_parse_path(raw, &ref) == 0)
			break;
	}
	path = elf_text_clean(raw ? raw : "");
	detail = *ref.pod_uid ? xasprintf("%s of pod %s",
					  *ref.container_id ? ref.container_id : "?", ref.pod_uid)
			      : xstrdup("in no pod: `podflame record --pid` and `podflame local` "
					"can profile it");
	c = cli_doctor_tell(d, "container", true, detail);
	json_object_set_new(c, "containerId", json_string(ref.container_id));
	json_object_set_new(c, "podUid", json_string(ref.pod_uid));
	json_object_set_new(c, "cgroup", json_string(path));
	cli_doctor_tell(d, "cgroup", true, path);
}

/* ---- runtimes ---- */

static void tell_runtime(struct doctor *d, const struct runtime_view *v)
{
	const struct runtime_ops *ops = runtime_ops(v->kind);
	const struct runtime_learnt *l = v->learnt;
	const char *fine =
		runtime_is_context(v->kind)
			? "with traceContext: true its samples carry the ids of the calls"
			: "podflame shows its functions among the native ones";
	_cleanup_free_ char *check =
		xasprintf("%s %s%s%s", runtime_is_context(v->kind) ? "context" : "runtime",
			  ops->title, *l->version ? " " : "", l->version);
	json_t *c = cli_doctor_tell(d, check, !*l->problem, *l->problem ? l->problem : fine);

	json_object_set_new(c, runtime_is_context(v->kind) ? "context" : "runtime",
			    json_string(ops->name));
	json_object_set_new(c, "version", json_string(l->version));
	json_object_set_new(c, "works", json_boolean(l->data != NULL));
}

/*
 * Adds a check for a runtime that podflame recognises but does not unwind. named: a perf map has
 * the names of its functions.
 */
static void tell_seen(struct doctor *d, const struct runtime_recognised *s, bool named)
{
	_cleanup_free_ char *check = xasprintf("runtime %s", s->title);
	json_t *c = cli_doctor_tell(d, check, named,
				    named ? "a perf map names its functions" : s->text);

	json_object_set_new(c, "runtime", json_string(s->name));
	json_object_set_new(c, "works", json_boolean(named));
}

static bool is_go(const struct mappings *m, struct elf_index *const *indexes)
{
	for (size_t i = 0; i < m->n; i++)
		if (indexes[i] && elf_index_flags(indexes[i]) & ELF_INDEX_GO)
			return true;
	return false;
}

static void tell_native(struct doctor *d, const struct mappings *m,
			struct elf_index *const *indexes, const struct runtime_process *p)
{
	bool generated = false;

	for (size_t i = 0; i < m->n; i++)
		generated |= runtime_mapping_is_generated(&m->items[i], indexes[i]);
	if (generated && runtime_process_generated(p))
		cli_doctor_tell(d, "runtime", true,
				"code made at run time: stacks go through it by the unwind rows "
				"that its compiler publishes, and a perf map would name it");
	else if (generated)
		cli_doctor_tell(
			d, "runtime", false,
			"code made at run time by a runtime that podflame does not know: "
			"stacks go through it by frame pointers, and a perf map would name it");
	else
		cli_doctor_tell(d, "runtime", true, is_go(m, indexes) ? "Go" : "native code only");
}

static int learn(const struct mappings *m, struct elf_index *const *indexes,
		 struct java_requests *java, struct runtime_process **ret)
{
	const struct timespec pause = {.tv_nsec = 100 * NSEC_PER_MSEC};
	struct runtime_process *p = NULL;

	for (int i = 0; i < LEARN_TURNS; i++) {
		struct runtime_process *next = NULL;
		bool again = false;
		int r = runtime_learn(p, m, indexes, java, &next, &again);

		if (r < 0) {
			runtime_process_unref(p);
			return r;
		}
		runtime_process_unref(p);
		p = next;
		if (!again)
			break;
		nanosleep(&pause, NULL);
	}
	*ret = p;
	return 0;
}

static void tell_runtimes(struct doctor *d, const struct mappings *m,
			  struct elf_index *const *indexes)
{
	struct java_requests *java = runtime_java_requests_new();
	struct runtime_process *p = NULL;
	size_t n_runtimes = 0;
	int r = learn(m, indexes, java, &p);

	if (r < 0) {
		_cleanup_free_ char *detail = xasprintf("cannot read its memory: %s", strerror(-r));

		cli_doctor_tell(d, "runtime", false, detail);
		runtime_java_requests_unref(java);
		return;
	}
	for (size_t i = 0; i < runtime_process_n(p); i++) {
		struct runtime_view v = runtime_process_at(p, i);

		tell_runtime(d, &v);
		n_runtimes += !runtime_is_context(v.kind);
	}
	for (size_t i = 0; i < runtime_process_n_recognised(p); i++) {
		const struct runtime_recognised *s = runtime_process_recognised(p, i);

		tell_seen(d, s, s->by_map && runtime_process_has_map(p));
		n_runtimes++;
	}
	if (n_runtimes == 0)
		tell_native(d, m, indexes, p);
	if (runtime_java_unnamed(java, m->id))
		cli_doctor_tell(
			d, "Java names", false,
			"podflame cannot name the JVM's code; a target with javaAttach: "
			"Allowed lets the agent ask the JVM for the names (JDK 17 and newer)");
	runtime_process_unref(p);
	runtime_java_requests_unref(java);
}

/* ---- mapped files ---- */

static bool is_first(const struct mappings *m, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (streq(m->items[k].path, m->items[i].path))
			return false;
	return true;
}

enum unsure { SURE, IN_COPY, IN_MEMORY_FILE };

/*
 * Returns whether the mapped code may differ from the file that gives it its names. error: the
 * result of reading the file's index. If a file in memory is not an ELF program (-ENOEXEC), its
 * code was made at run time. Its names do not come from the file, so the result is SURE.
 */
static enum unsure unsure_of(const struct mapping *m, int error)
{
	if (m->copy)
		return IN_COPY;
	return m->memory_file && error != -ENOEXEC ? IN_MEMORY_FILE : SURE;
}

/*
 * Returns the bytes of all mappings with the same file and the same result of unsure_of() as the
 * k-th one. *ret_first: the k-th one is the first of them.
 */
static uint64_t bytes_as(const struct mappings *m, const int *errors, size_t k, bool *ret_first)
{
	uint64_t bytes = 0;

	*ret_first = true;
	for (size_t i = 0; i < m->n; i++) {
		const struct mapping *x = &m->items[i];

		if (unsure_of(x, errors[i]) != unsure_of(&m->items[k], errors[k]) ||
		    !streq(x->path, m->items[k].path))
			continue;
		bytes += x->end - x->start;
		*ret_first &= i >= k;
	}
	return bytes;
}

static void tell_unsure(struct doctor *d, const struct mappings *m, const int *errors)
{
	static const struct {
		const char *check, *text;
	} says[] = {
		[IN_COPY] =
			{"code in anonymous memory",
			 "lie in anonymous memory, because the program has copied it (for huge "
			 "pages); names and stacks come from the file, but only where the code in "
			 "memory is still equal to it"},
		[IN_MEMORY_FILE] =
			{"code in a file in memory",
			 "lie in a file in memory (memfd, tmpfs), which the program may rewrite; "
			 "names and stacks come from a copy of it that podflame has read, but only "
			 "where the code in memory is still equal to that copy"},
	};

	for (size_t i = 0; i < m->n; i++) {
		enum unsure is = unsure_of(&m->items[i], errors[i]);
		_cleanup_free_ char *path = NULL, *detail = NULL;
		uint64_t bytes;
		bool first;
		json_t *c;

		bytes = bytes_as(m, errors, i, &first);
		if (is == SURE || !first)
			continue;
		path = elf_text_clean(m->items[i].path);
		detail = xasprintf("%" PRIu64 " KiB of the code of %s %s", bytes / 1024, path,
				   says[is].text);
		c = cli_doctor_tell(d, says[is].check, true, detail);
		json_object_set_new(c, "path", json_string(path));
		json_object_set_new(c, "bytes", json_integer((json_int_t)bytes));
	}
}

static void tell_mapped(struct doctor *d, struct files *files, const struct mappings *m)
{
	struct elf_index **indexes = xcalloc(m->n + 1, sizeof(struct elf_index *));
	int *errors = xcalloc(m->n + 1, sizeof(int));

	for (size_t i = 0; i < m->n; i++)
		if (m->items[i].path[0] == '/')
			errors[i] = files_index(files, &m->items[i], &indexes[i]);
	tell_runtimes(d, m, indexes);
	tell_unsure(d, m, errors);
	cli_doctor_events(d, files, m, is_go(m, indexes));
	for (size_t i = 0; i < m->n; i++)
		if (m->items[i].path[0] == '/' && is_first(m, i) &&
		    !(m->items[i].memory_file && errors[i] == -ENOEXEC))
			cli_doctor_file(d, files, &m->items[i], m->root_fd, indexes[i], errors[i]);
	for (size_t i = 0; i < m->n; i++)
		elf_index_unref(indexes[i]);
	free(indexes);
	free(errors);
}

void cli_doctor_process(struct doctor *d, struct files *files)
{
	_cleanup_free_ char *stat = NULL, *why = NULL;
	struct mappings *m = NULL;
	uint32_t tgid = cli_process_of(d->pid);
	uint64_t start;
	int r = proc_start_boottime(d->pid, &start);

	if (tgid && tgid != d->pid) {
		why = xasprintf("%" PRIu32 " is a thread of process %" PRIu32, d->pid, tgid);
		cli_doctor_tell(d, "process", false, why);
		return;
	}
	if (!r)
		r = read_proc(d->pid, "stat", &stat);
	if (!r && is_kernel_thread(stat)) {
		cli_doctor_tell(d, "process", false,
				"it is a kernel thread: its samples have only kernel functions");
		return;
	}
	if (!r)
		r = proc_mappings_read((struct process_id){start, d->pid}, 0, &m);
	if (r) {
		why = problem_text(r);
		cli_doctor_tell(d, "process", false, why);
		return;
	}
	tell_process(d, start);
	tell_container(d);
	tell_mapped(d, files, m);
	proc_mappings_unref(m);
}
