/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All kinds of containers: made by runc, with namespaces that are shared in the ways that pods may
 * share them, from images that are almost empty, in cgroups of every shape. Also agents that start
 * before the kubelet, or again. The numbers in the names of the tests are those of
 * docs/containers.md.
 */
#include "node/testcontainers.h"

#include <dirent.h>
#include <glob.h>

/* ---- runc ---- */

/* The properties in which containers differ. */
struct kind {
	const char *rootfs; /* which root file system: "static" or "musl" */
	/*
	 * the end of the namespace's object in config.json; NULL: a new PID namespace; "": that of
	 * the host
	 */
	const char *pid_ns;
	bool user_ns;
};

static const char *const config_form =
	"{\"ociVersion\": \"1.0.2\", \"process\": {\"user\": {\"uid\": 0, \"gid\": 0}, \"cwd\": "
	"\"/\", \"env\": [\"PATH=/\"],"
	" \"args\": [\"/t-%02u\", \"%u\", \"burn\", \"%s\"]}, \"root\": {\"path\": \"%s/%s\", "
	"\"readonly\": true},"
	" \"mounts\": [{\"destination\": \"/proc\", \"type\": \"proc\", \"source\": \"proc\"},"
	" {\"destination\": \"/dev\", \"type\": \"tmpfs\", \"source\": \"tmpfs\"}],"
	" \"linux\": {\"cgroupsPath\": \"%s\", \"namespaces\": [{\"type\": \"mount\"}, {\"type\": "
	"\"ipc\"}%s%s]%s}}";

/* Writes a bundle for the next start of container k. */
static void write_bundle(const struct tenants *t, unsigned k, unsigned start, const char *ms,
			 const struct kind *kind)
{
	static const char maps[] = "[{\"containerID\": 0, \"hostID\": 100000, \"size\": 65536}]";
	_cleanup_free_ char *dir = tenant_dir(t, k, k, start);
	_cleanup_free_ char *mapped =
		kind->user_ns ? xasprintf(", \"uidMappings\": %s, \"gidMappings\": %s", maps, maps)
			      : xstrdup("");
	_cleanup_free_ char *text =
		xasprintf(config_form, k, k, ms, t->dir, kind->rootfs, dir + strlen(t->h.mount),
			  kind->pid_ns ? kind->pid_ns : ", {\"type\": \"pid\"}",
			  kind->user_ns ? ", {\"type\": \"user\"}" : "", mapped);
	_cleanup_free_ char *bundle = xasprintf("%s/b-%02u", t->dir, k);
	_cleanup_free_ char *path = xasprintf("%s/config.json", bundle);

	(void)mkdir(bundle, 0755);
	if (file_write_atomic(path, text, strlen(text), 0644) < 0)
		_exit(8);
}

/* Runs runc without output. */
static bool run_quietly(char *const argv[])
{
	pid_t pid = fork();
	int status, fd;

	if (pid == 0) {
		fd = open("/dev/null", O_RDWR);
		for (int i = 0; i < 3; i++)
			dup2(fd, i);
		execvp(argv[0], argv);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	return status == 0;
}

static char *state_of(const struct tenants *t)
{
	return xasprintf("%s/state", t->dir);
}

/*
 * Starts container k. Unless runs_on is set, waits for its end. Returns false if it could not be
 * started.
 */
static bool runc_run(const struct tenants *t, unsigned k, unsigned start, bool runs_on)
{
	_cleanup_free_ char *state = state_of(t), *id = tenant_id(t, k, start);
	_cleanup_free_ char *bundle = xasprintf("%s/b-%02u", t->dir, k);
	_cleanup_free_ char *pid = xasprintf("%s/pid", bundle);
	char *const argv[] = {"runc", "--root",	    state, "run", "--bundle",
			      bundle, "--pid-file", pid,   id,	  NULL};
	char *const detached[] = {"runc", "--root",	state, "run", "-d", "--bundle",
				  bundle, "--pid-file", pid,   id,    NULL};

	return run_quietly(runs_on ? detached : argv);
}

static bool runc_exec(const struct tenants *t, unsigned k)
{
	_cleanup_free_ char *state = state_of(t), *id = tenant_id(t, k, 0);
	_cleanup_free_ char *program = xasprintf("/t-%02u", k);
	char *const argv[] = {"runc",  "--root",    state,  "exec", id,
			      program, program + 3, "burn", "10",   NULL};

	return run_quietly(argv);
}

static void runc_delete(const struct tenants *t, const char *id)
{
	_cleanup_free_ char *state = state_of(t);
	char *const argv[] = {"runc", "--root", state, "delete", "-f", (char *)id, NULL};

	(void)run_quietly(argv);
}

static bool compile(const char *compiler, const char *how, const char *path)
{
	char *const argv[] = {(char *)compiler, "-O2", "-fno-pie",   "-no-pie",	    "-DTENANT",
			      (char *)how,	"-o",  (char *)path, TENANT_SOURCE, NULL};

	return run_quietly(argv);
}

/*
 * Makes a root file system that has only the program, under two or more names, and a directory for
 * /proc. It has no /tmp, no shell and no libraries.
 */
static bool make_rootfs(struct tenants *t, const char *name, const char *compiler, const char *how)
{
	_cleanup_free_ char *dir = xasprintf("%s/%s", t->dir, name);
	_cleanup_free_ char *proc = xasprintf("%s/proc", dir), *dev = xasprintf("%s/dev", dir);
	_cleanup_free_ char *program = xasprintf("%s/t-00", dir);

	if (chmod(t->dir, 0755) < 0 || mkdir(dir, 0755) < 0 || mkdir(proc, 0755) < 0 ||
	    mkdir(dev, 0755) < 0 || !compile(compiler, how, program))
		return false;
	for (unsigned k = 1; k < TENANTS; k++) {
		_cleanup_free_ char *other = xasprintf("%s/t-%02u", dir, k);

		if (link(program, other) < 0)
			return false;
	}
	return true;
}

static bool copy_loader(const struct tenants *t)
{
	_cleanup_free_ char *lib = xasprintf("%s/musl/lib", t->dir);
	char *const argv[] = {"cp", "-L", "/lib/ld-musl-x86_64.so.1", lib, NULL};

	return mkdir(lib, 0755) == 0 && run_quietly(argv);
}

/*
 * Returns why this test cannot run (there is no runc, or it cannot make a container here); NULL: it
 * can.
 */
static const char *runc_problem(struct fixture *f)
{
	static const struct kind plain = {.rootfs = "static"};
	char *const version[] = {"runc", "--version", NULL};

	if (!run_quietly(version))
		return "there is no runc";
	if (!make_rootfs(&f->t, "static", "gcc", "-static") ||
	    !make_rootfs(&f->t, "musl", "musl-gcc", "-O2") || !copy_loader(&f->t))
		return "no static programs, or none for musl, can be made here";
	write_bundle(&f->t, TENANTS - 1, 0, "1", &plain);
	return runc_run(&f->t, TENANTS - 1, 0, false) ? NULL : "runc starts no containers here";
}

#define NEEDS_RUNC(f)                                                                              \
	do {                                                                                       \
		const char *why = (f) ? runc_problem(f) : "no fixture";                            \
                                                                                                   \
		if (why) {                                                                         \
			print_message("skip: runc: %s\n", why);                                    \
			skip();                                                                    \
		}                                                                                  \
	} while (0)

/* Removes the directory that runc leaves in each hierarchy. */
static void clear_hierarchies(const struct tenants *t)
{
	_cleanup_free_ char *form = xasprintf("/sys/fs/cgroup/*/kubepods-tenants-%u", t->run);
	glob_t found;

	if (glob(form, 0, NULL, &found) == 0)
		for (size_t i = 0; i < found.gl_pathc; i++)
			nftw(found.gl_pathv[i], tenant_rmdir_entry_, 16, FTW_DEPTH | FTW_PHYS);
	globfree(&found);
}

/* Kills everything that runs in runc's containers. */
static void end_runcs(struct fixture *f)
{
	_cleanup_free_ char *state = state_of(&f->t);
	struct dirent *e;
	DIR *d;

	tenants_kill(&f->t);
	d = opendir(state);
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			runc_delete(&f->t, e->d_name);
	if (d)
		closedir(d);
	clear_hierarchies(&f->t);
}

static int tear_down_runc(void **state)
{
	if (*state)
		end_runcs(*state);
	return tear_down(state);
}

/* ---- containers that runc makes ---- */

#define FOR_LONG "300000" /* in ms; then the process ends, if the test has not ended it */

static void start_runc(struct fixture *f, unsigned k, const struct kind *kind)
{
	write_bundle(&f->t, k, 0, FOR_LONG, kind);
	if (!runc_run(&f->t, k, 0, true))
		fail_msg("runc does not start container %u", k);
}

static const struct kind plain = {.rootfs = "static"};

static void runc_crash_loop(struct tenants *t, unsigned k)
{
	for (;;) {
		unsigned start = t->shared->starts[k] + 1;

		write_bundle(t, k, start, "30", &plain);
		__atomic_store_n(&t->shared->starts[k], start, __ATOMIC_RELEASE);
		if (!runc_run(t, k, start, false))
			_exit(9);
		t->shared->ends[k]++;
		sleep(is_long());
	}
}

static void runc_execs(struct tenants *t, unsigned k)
{
	for (;;) {
		if (!runc_exec(t, k))
			_exit(10);
		t->shared->ends[k]++;
	}
}

static bool runc_seen(struct fixture *f)
{
	const unsigned *ends = f->t.shared->ends, n = is_long() ? 600 : 8;

	return n_of(0, EVENT_ON_CPU) >= 100 && n_of(10, EVENT_ON_CPU) >= 50 && ends[0] >= n &&
	       ends[1] >= n && ends[10] >= n && ends[11] >= n;
}

/*
 * Programs are started in a running container, as kubectl exec does, and another container crashes
 * again and again (LONG=1: at 1 Hz for ten minutes). Beside each runs a container that is not
 * selected.
 */
static void test_runc_89_90_91_92_96_122(void **state)
{
	static const struct tenant_wish wishes[] = {{.k = 0, .pod = 0},
						    {.k = 10, .pod = 10, .arm = true}};
	struct fixture *f = *state;

	NEEDS_RUNC(f);
	start_runc(f, 0, &plain);
	start_runc(f, 1, &plain);
	start_node(f, wishes, ARRAY_SIZE(wishes));
	tenants_play(&f->t, runc_execs, 0);
	tenants_play(&f->t, runc_execs, 1);
	tenants_play(&f->t, runc_crash_loop, 10);
	tenants_play(&f->t, runc_crash_loop, 11);
	run_until(f, runc_seen, "restarts and execs of runc's containers");
	end_runcs(f);
	end_and_check(f, true);
	assert_true(arrived.of[10].starts >= 3);
}

/* Returns the text ", {...}" for the PID namespace of the first process of container k. */
static char *pid_ns_of(const struct fixture *f, unsigned k)
{
	_cleanup_free_ char *path = xasprintf("%s/b-%02u/pid", f->t.dir, k), *pid = NULL;

	assert_int_equal(file_read(AT_FDCWD, path, 64, &pid, NULL), 0);
	return xasprintf(", {\"type\": \"pid\", \"path\": \"/proc/%s/ns/pid\"}", pid);
}

static bool namespaces_seen(struct fixture *f)
{
	for (size_t i = 0; i < f->n_wishes; i++)
		if (n_of(f->wishes[i].k, EVENT_ON_CPU) < 30)
			return false;
	return true;
}

/*
 * hostPID, shareProcessNamespace, hostUsers: false, an image with a static program only, one with
 * musl, and root file systems that are read-only. Of each kind, one container is selected and one
 * is not.
 */
static void test_runc_namespaces_and_images_101_106_118_122(void **state)
{
	static const struct tenant_wish wishes[] = {{.k = 0, .pod = 0},
						    {.k = 2, .pod = 2},
						    {.k = 4, .pod = 4},
						    {.k = 6, .pod = 6},
						    {.k = 8, .pod = 8}};
	static const struct kind hosts = {.rootfs = "static", .pid_ns = ""},
				 users = {.rootfs = "static", .user_ns = true},
				 musl = {.rootfs = "musl"};
	_cleanup_free_ char *pid_ns = NULL;
	struct kind sharing = {.rootfs = "musl"};
	struct fixture *f = *state;

	NEEDS_RUNC(f);
	for (unsigned k = 0; k < 2; k++) {
		start_runc(f, 0 + k, &hosts);
		start_runc(f, 6 + k, &users);
		start_runc(f, 8 + k, &musl);
	}
	start_runc(f, 2, &plain);
	sharing.pid_ns = pid_ns = pid_ns_of(f, 2);
	start_runc(f, 3, &sharing);
	start_runc(f, 4, &sharing);
	start_node(f, wishes, ARRAY_SIZE(wishes));
	run_until(f, namespaces_seen, "samples of each container, with names");
	end_runcs(f);
	end_and_check(f, true);
}

/* ---- shapes of cgroups ---- */

static const char *const shapes[] = {
	/* cgroupfs: a pod of QoS class Guaranteed, and one of class Burstable */
	"pod%U/%C",
	"burstable/pod%U/%C",
	/* systemd: containerd, CRI-O with the child cgroup of crun, docker */
	"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%u.slice/"
	"cri-containerd-%C.scope",
	"kubepods.slice/kubepods-pod%u.slice/crio-%C.scope/container",
	"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod%u.slice/docker-%C.scope",
	/*
	 * Kubernetes in Docker ("kind"), a kubelet with its own cgroup root, containerd with the
	 * wrong cgroup driver
	 */
	"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
	"kubelet-kubepods-burstable-pod%u.slice/cri-containerd-%C.scope",
	"node2/kubepods/besteffort/pod%U/%C",
	"system.slice/containerd.service/kubepods-burstable-pod%u.slice:cri-containerd:%C",
	/* systemd inside the container */
	"pod%U/%C/init.scope/system.slice/web.service",
};

/*
 * Of each shape, one container is selected, and its neighbour is not. CRI-O's conmon belongs to no
 * pod.
 */
static void check_shapes(struct fixture *f)
{
	struct tenant_wish wishes[ARRAY_SIZE(shapes)];
	const struct tenant_work burn = {.work = "burn", .amount = "0"};
	size_t n = 0;

	NEEDS(f);
	for (unsigned i = 0; i < ARRAY_SIZE(shapes); i++) {
		f->t.shapes[2 * i] = f->t.shapes[2 * i + 1] = shapes[i];
		tenant_run(&f->t, 2 * i, 2 * i, &burn);
		tenant_run(&f->t, 2 * i + 1, 2 * i + 1, &burn);
		wishes[n++] = (struct tenant_wish){.k = 2 * i, .pod = 2 * i};
	}
	start_node(f, wishes, n);
	run_until(f, namespaces_seen, "samples of a container of each shape");
	end_and_check(f, true);
}

static void test_shapes_107_108_109_111_114(void **state)
{
	check_shapes(*state);
}

static void test_shapes_in_v2_110(void **state)
{
	check_shapes(*state);
}

/* ---- agents that start before the kubelet, or again ---- */

static const struct tenant_wish one_wish[] = {{.k = 0, .pod = 0}};
static const struct tenant_work steadily = {.work = "burn", .amount = "0"};

static bool filter_settled(struct fixture *f)
{
	return kernel_settled(f->node->kernel) && kernel_filtered(f->node->kernel);
}

static bool first_seen(struct fixture *f)
{
	(void)f;
	return n_of(0, EVENT_ON_CPU) >= 50;
}

/* No pod has a cgroup yet, and the directory in which the kubelet makes them does not exist. */
static void test_before_kubelet_127(void **state)
{
	struct fixture *f = *state;

	NEEDS(f);
	assert_int_equal(rmdir(f->t.top), 0);
	start_node(f, one_wish, ARRAY_SIZE(one_wish));
	run_until(f, filter_settled, "programs are loaded, and cgroups were looked for");
	tenant_run(&f->t, 1, 1, &steadily);
	tenant_run(&f->t, 0, 0, &steadily);
	run_until(f, first_seen, "samples of a container that came after the agent");
	end_and_check(f, true);
}

/* Returns the number of BPF programs, maps and links that this process has open. */
static unsigned n_bpf_objects(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	unsigned n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		char target[64] = "";

		n += readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1) > 0 &&
		     (strstr(target, "bpf") || strstr(target, "perf_event"));
	}
	closedir(d);
	return n;
}

static bool first_and_second_seen(struct fixture *f)
{
	return first_seen(f) && n_of(2, EVENT_MEM_ALLOC) >= 5;
}

/*
 * After an agent has ended, it has nothing open in the kernel, not even the probes for memory
 * events. The next agent gets the same samples.
 */
static void test_agent_restart_126(void **state)
{
	static const struct tenant_wish wishes[] = {
		{.k = 0, .pod = 0}, {.k = 2, .pod = 2, .event_mask = 1u << EVENT_MEM_ALLOC}};
	const struct tenant_work mix = {.work = "mix", .amount = "0"};
	struct fixture *f = *state;

	NEEDS(f);
	tenant_run(&f->t, 0, 0, &steadily);
	tenant_run(&f->t, 1, 1, &steadily);
	tenant_run(&f->t, 2, 2, &mix);
	tenant_run(&f->t, 3, 3, &mix);
	for (int i = 0; i < 2; i++) {
		start_node(f, wishes, ARRAY_SIZE(wishes));
		run_until(f, first_and_second_seen, "samples of each");
		timer_cancel(&f->plan);
		f->node = node_free(f->node);
		assert_int_equal(n_bpf_objects(), 0);
		memset(arrived.of, 0, sizeof(arrived.of));
	}
	end_and_check(f, false);
}

#define R(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down_runc)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		R(test_runc_89_90_91_92_96_122),
		R(test_runc_namespaces_and_images_101_106_118_122),
		T(test_shapes_107_108_109_111_114),
		cmocka_unit_test_setup_teardown(test_shapes_in_v2_110, set_up_v2, tear_down),
		T(test_before_kubelet_127),
		T(test_agent_restart_126),
	};

	return run_group("node/containers_kinds", tests, ARRAY_SIZE(tests), argc, argv);
}
