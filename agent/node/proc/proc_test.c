/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cgroup paths as runtimes write them, trees of cgroups that the test makes, and the container to
 * which a sample belongs.
 */
#include "lib/base/testdir.h"
#include "node/plan/testplan.h"
#include "node/proc/internal.h"

#include <setjmp.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define UID    "401b6bf6-91e0-4a28-870a-232376283f12"
#define UID_   "401b6bf6_91e0_4a28_870a_232376283f12"
#define UID2   "5d2a11c0-0000-4a28-870a-00000000beef"
#define UID2_  "5d2a11c0_0000_4a28_870a_00000000beef"
#define HASH   "3e61c214bc3ed9ff81e21474dd6cba17"
#define C8(c)  #c #c #c #c #c #c #c #c
#define C64(c) C8(c) C8(c) C8(c) C8(c) C8(c) C8(c) C8(c) C8(c)
#define ID     C64(a)
#define ID2    C64(1)
#define BURST  "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"

/* ---- paths ---- */

struct path_case {
	const char *path, *uid, *id; /* uid NULL: the path names no pod */
	bool helper, nested;
};

static const struct path_case path_cases[] = {
	{BURST UID_ ".slice/cri-containerd-" ID ".scope", UID, ID, false, false},
	{BURST UID_ ".slice/crio-" ID ".scope", UID, ID, false, false},
	{BURST UID_ ".slice/crio-" ID ".scope/container", UID, ID, false, true},
	{BURST UID_ ".slice/crio-conmon-" ID ".scope", UID, ID, true, false},
	{BURST UID_ ".slice/docker-" ID ".scope", UID, ID, false, false},
	{BURST UID_ ".slice", UID, "", false, false},
	{"/kubepods.slice/kubepods-pod" UID_ ".slice/cri-containerd-" ID ".scope", UID, ID, false,
	 false},
	{"/kubepods/burstable/pod" UID "/" ID, UID, ID, false, false},
	{"/kubepods/pod" UID "/" ID, UID, ID, false, false},
	{"/kubepods/besteffort/pod" UID, UID, "", false, false},
	{"/kubepods/pod" UID "/crio-" ID, UID, ID, false, false},
	{"/kubepods/pod" UID "/crio-conmon-" ID, UID, ID, true, false},
	{"/node2/kubepods/burstable/pod" UID "/" ID, UID, ID, false, false},
	{"/system.slice/containerd.service/kubepods-burstable-pod" UID_ ".slice:cri-containerd:" ID,
	 UID, ID, false, false},
	{"/kubepods/burstable/pod" HASH "/" ID, HASH, ID, false, false},
	{BURST HASH ".slice/cri-containerd-" ID ".scope", HASH, ID, false, false},
	{"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
	 "kubelet-kubepods-burstable-pod" UID_ ".slice/cri-containerd-" ID ".scope",
	 UID, ID, false, false},
	{"/system.slice/docker-" ID2 ".scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-"
	 "burstable.slice/kubelet-kubepods-burstable-pod" UID_ ".slice/cri-containerd-" ID ".scope",
	 UID, ID, false, false},
	{"/docker/" ID2 "/kubelet/kubepods/burstable/pod" UID "/" ID, UID, ID, false, false},
	{"/kubepods/pod" UID2 "/" ID2 "/kubelet/kubepods/besteffort/pod" UID "/" ID, UID, ID, false,
	 false},
	{"/kubepods/pod" UID2 "/" ID2 "/kubelet/kubepods", UID2, ID2, false, true},
	{"/kubepods/pod" UID "/" ID "/docker/" ID2, UID, ID, false, true},
	{"/kubepods/pod" UID "/" ID "/kube-proxy", UID, ID, false, true},
	{"/kubepods/pod" UID "/" ID "/init.scope", UID, ID, false, true},
	{"/kubepods/pod" UID "/" ID "/podman/x", UID, ID, false, true},
	{"/kubepods/burstable/pod" UID "/" ID " (deleted)", UID, ID, false, false},
	{"/../../kubepods/burstable/pod" UID "/" ID, UID, ID, false, false},
	{"//kubepods//burstable/pod" UID "/" ID "/", UID, ID, false, false},
	{"/", NULL, NULL, false, false},
	{"", NULL, NULL, false, false},
	{"/kubepods/burstable", NULL, NULL, false, false},
	{"/kubepods.slice/kubepods-burstable.slice", NULL, NULL, false, false},
	{"/system.slice/docker-" ID ".scope", NULL, NULL, false, false},
	{"/machine.slice/libpod-" ID ".scope", NULL, NULL, false, false},
	{"/machine.slice/libpod-payload-" ID, NULL, NULL, false, false},
	{"/lxc.payload.web/system.slice/x.service", NULL, NULL, false, false},
	{"/podruntime/runtime", NULL, NULL, false, false},
	{"/user.slice/user-0.slice/pod" UID "/" ID, NULL, NULL, false, false},
	{"/kubepods/pod" UID "/nothex-" UID, UID, "", false, false},
};

static void test_paths(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(path_cases); i++) {
		const struct path_case *c = &path_cases[i];
		struct cgroup_ref ref;
		int r = proc_cgroup_parse_path(c->path, &ref);

		if (r != (c->uid ? 0 : -ENOENT))
			fail_msg("%s: %d", c->path, r);
		if (!c->uid)
			continue;
		if (!streq(ref.pod_uid, c->uid) || !streq(ref.container_id, c->id) ||
		    ref.runtime_helper != c->helper || ref.nested != c->nested)
			fail_msg("%s: pod '%s' container '%s' helper %d nested %d", c->path,
				 ref.pod_uid, ref.container_id, ref.runtime_helper, ref.nested);
	}
	(void)state;
}

/*
 * The kernel reports paths. Any process that may make cgroups chooses their names, which may be
 * long.
 */
static void test_long_names(void **state)
{
	char path[8192] = "/kubepods/pod";
	struct cgroup_ref ref;

	memset(path + strlen(path), 'x', 7000);
	assert_int_equal(proc_cgroup_parse_path(path, &ref), -ENOENT);
	(void)state;
}

/* ---- hierarchy ---- */

#define MOUNT(root, point, type, options)                                                          \
	"30 20 0:1 " root " " point " rw shared:9 - " type " none " options "\n"
static const char controllers[] =
	"#subsys_name\thierarchy\tnum_cgroups\tenabled\n"
	"cpuset\t3\t13\t1\ncpu\t1\t13\t1\nmemory\t4\t26\t1\npids\t8\t13\t1\n";
static const char hybrid[] = MOUNT("/", "/sys/fs/cgroup", "tmpfs", "rw")
	MOUNT("/", "/sys/fs/cgroup/cpu", "cgroup", "rw,cpu,cpuacct")
		MOUNT("/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory")
			MOUNT("/", "/sys/fs/cgroup/pids", "cgroup", "rw,pids")
				MOUNT("/", "/sys/fs/cgroup/unified", "cgroup2", "rw");

static const char *pods_at;
static bool has_pods(const char *mount)
{
	return pods_at && streq(mount, pods_at);
}

static void expect_choice(const char *mountinfo, const char *force, const char *pods,
			  const char *mount, uint32_t id)
{
	struct cgroup_hierarchy h;
	struct field_error err = {0};

	pods_at = pods;
	assert_int_equal(proc_cgroup_choose_from(mountinfo, controllers, force, has_pods, &h, &err),
			 0);
	assert_string_equal(h.mount, mount);
	assert_int_equal(h.hierarchy_id, id);
	assert_int_equal(h.v2, id == 0);
	assert_int_equal(h.subsys_index, UINT32_MAX);
}

static void test_choose(void **state)
{
	static const char pure[] = MOUNT("/", "/sys/fs/cgroup", "cgroup2", "rw,nsdelegate");
	static const char view[] =
		MOUNT("/docker/x", "/sys/fs/cgroup/memory", "cgroup", "rw,memory")
			MOUNT("/", "/host/memory", "cgroup", "rw,memory");
	/*
	 * In a pod: first the container's own view is mounted, in a cgroup namespace, and then the
	 * host's tree over it.
	 */
	static const char covered[] = MOUNT("/", "/sys/fs/cgroup", "cgroup2", "rw")
		MOUNT("/../../..", "/sys/fs/cgroup", "cgroup2", "ro");
	/* A container in a container, with a runtime that does not use cgroup namespaces. */
	_cleanup_free_ char *deep = xasprintf(MOUNT("/%0300d", "/sys/fs/cgroup", "cgroup2", "rw")
						      MOUNT("/", "/%0300d", "cgroup", "rw,memory"),
					      1, 1);
	struct cgroup_hierarchy h;
	struct field_error err = {0};

	expect_choice(deep, "", NULL, "/sys/fs/cgroup", 0);
	expect_choice(covered, "", NULL, "/sys/fs/cgroup", 0);
	expect_choice(pure, "", NULL, "/sys/fs/cgroup", 0);
	expect_choice(hybrid, "", NULL, "/sys/fs/cgroup/memory", 4);
	expect_choice(hybrid, "", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/pids", 8);
	expect_choice(hybrid, "", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified", 0);
	expect_choice(hybrid, "v2", NULL, "/sys/fs/cgroup/unified", 0);
	expect_choice(hybrid, "v1:cpu", NULL, "/sys/fs/cgroup/cpu", 1);
	expect_choice(view, NULL, NULL, "/host/memory", 4);
	assert_int_equal(proc_cgroup_choose_from(pure, "", "v1:memory", has_pods, &h, &err),
			 -ENOENT);
	assert_string_equal(err.reason, "v1:memory is not mounted here");
	assert_int_equal(proc_cgroup_choose_from(pure, "", "v3", has_pods, &h, &err), -EINVAL);
	assert_int_equal(proc_cgroup_choose_from("", "", "", has_pods, &h, &err), -ENOENT);
	(void)state;
}

/* ---- real trees ---- */

static int make(char *path, const char *name)
{
	strcat(strcat(path, "/"), name);
	return mkdir(path, 0755);
}

/*
 * Makes MOUNT/kubepods-test-PID/pod<UID>/<ID>/child and scans it. Skipped if the test may not make
 * cgroups.
 */
static void scan_tree(const char *force)
{
	struct cgroup_hierarchy h;
	struct field_error err = {0};
	struct cgroup_scan *s;
	char path[1024], name[64];
	size_t n_at_mount, n_found = 0;
	uint64_t ids[4];

	if (proc_cgroup_choose(force, &h, &err)) {
		print_message("skipped: %s: %s\n", force, err.reason);
		skip();
	}
	snprintf(path, sizeof(path), "%s", h.mount);
	n_at_mount = strlen(path) + 1;
	snprintf(name, sizeof(name), "kubepods-test-%d", getpid());
	if (make(path, name)) {
		print_message("skipped: %s: %s\n", path, strerror(errno));
		skip();
	}
	assert_int_equal(proc_cgroup_id_of(&h, path + n_at_mount, &ids[0]), 0);
	assert_int_equal(make(path, "pod" UID), 0);
	assert_int_equal(proc_cgroup_id_of(&h, path + n_at_mount, &ids[1]), 0);
	assert_int_equal(make(path, ID), 0);
	assert_int_equal(proc_cgroup_id_of(&h, path + n_at_mount, &ids[2]), 0);
	assert_int_equal(make(path, "child"), 0);
	assert_int_equal(proc_cgroup_id_of(&h, path + n_at_mount, &ids[3]), 0);
	assert_int_equal(proc_cgroup_scan(&h, &s), 0);
	for (int i = 0; i < 4; i++, *strrchr(path, '/') = '\0')
		assert_int_equal(rmdir(path), 0);
	for (size_t i = 0; i < s->n; i++)
		for (size_t k = 1; k < 4; k++) {
			if (s->items[i].id != ids[k])
				continue;
			n_found++;
			assert_int_equal(s->items[i].parent_id, ids[k - 1]);
			assert_string_equal(s->items[i].ref.pod_uid, UID);
			assert_string_equal(s->items[i].ref.container_id, k == 1 ? "" : ID);
			assert_int_equal(s->items[i].ref.nested, k == 3);
		}
	assert_int_equal(n_found, 3);
	proc_cgroup_scan_free(s);
}

static void test_scan_v1(void **state)
{
	scan_tree("v1:memory");
	(void)state;
}

static void test_scan_v2(void **state)
{
	scan_tree("v2");
	(void)state;
}

static uint64_t dropped(const char *reason)
{
	return counter_get(counter("podflame_cgroups_dropped_total", "reason", reason));
}

/*
 * If a container makes very many cgroups, the scan ends at a limit and reports this. The cgroups
 * that it has found are used.
 */
static void test_scan_limit(void **state)
{
	struct cgroup_hierarchy h = {.v2 = true};
	char dir[] = "/dev/shm/podflame-test-XXXXXX",
	     path[sizeof(dir) + 32]; /* /dev/shm is in memory, so this is fast */
	uint64_t limited = dropped("scan_limit"), refused = dropped("not_permitted");
	struct cgroup_scan *s;

	if (!mkdtemp(dir)) {
		print_message("skipped: %s: %s\n", dir, strerror(errno));
		skip();
	}
	snprintf(h.mount, sizeof(h.mount), "%s", dir);
	for (unsigned i = 0; i < 65536; i++) {
		snprintf(path, sizeof(path), "%s/%05u", dir, i);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	assert_int_equal(proc_cgroup_scan(&h, &s), 0);
	assert_false(s->truncated);
	proc_cgroup_scan_free(s);
	snprintf(path, sizeof(path), "%s/one-more", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(proc_cgroup_scan(&h, &s), 0);
	assert_true(s->truncated);
	proc_cgroup_scan_free(s);
	assert_int_equal(dropped("scan_limit") - limited, 1);
	assert_int_equal(dropped("not_permitted"), refused);
	assert_int_equal(testdir_remove(dir), 0);
	(void)state;
}

/* A directory that may not be read is counted with a reason of its own, not as a limit. */
static void test_scan_not_permitted(void **state)
{
	struct cgroup_hierarchy h = {.v2 = true};
	char dir[TESTDIR_BYTES], path[TESTDIR_BYTES + 128];
	uint64_t limited = dropped("scan_limit"), refused = dropped("not_permitted");
	struct cgroup_scan *s;

	if (geteuid() != 0) {
		print_message("skipped: not root\n");
		skip();
	}
	assert_int_equal(testdir_make(dir), 0);
	snprintf(h.mount, sizeof(h.mount), "%s", dir);
	snprintf(path, sizeof(path), "%s/closed", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/pod" UID, dir);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(chmod(dir, 0755), 0);
	assert_int_equal(seteuid(65534), 0);
	assert_int_equal(proc_cgroup_scan(&h, &s), 0);
	assert_int_equal(seteuid(0), 0);
	assert_true(s->truncated);
	assert_int_equal(dropped("scan_limit"), limited);
	assert_int_equal(dropped("not_permitted") - refused, 1);
	proc_cgroup_scan_free(s);
	assert_int_equal(testdir_remove(dir), 0);
	(void)state;
}

static void test_id_of_missing(void **state)
{
	struct cgroup_hierarchy h = {.mount = "/proc"};
	uint64_t id;

	assert_int_equal(proc_cgroup_id_of(&h, "no-such", &id), -ENOENT);
	assert_int_equal(proc_cgroup_id_of(&h, "self/stat", &id), -ENOTDIR);
	(void)state;
}

/* ---- the table ---- */

#define S NSEC_PER_SEC

static struct containers *make_procs(void)
{
	struct containers *p;

	proc_containers_new(&p);
	return p;
}

static size_t n_filter(struct containers *p, uint64_t now_ns, bool changed)
{
	bool is_changed;
	size_t n;

	proc_containers_filter(p, now_ns, &n, &is_changed);
	assert_int_equal(is_changed, changed);
	return n;
}

/* The tag `container` of the owner; "" if it has none; "nobody" if there is no owner. */
static const char *container_of(struct containers *p, uint64_t id, uint64_t *ret_until)
{
	static char text[64];
	struct owner *o = proc_containers_owner(p, id, ret_until);

	snprintf(text, sizeof(text), "%s", o ? "" : "nobody");
	for (size_t i = 0; o && i < o->tags.n; i++)
		if (streq(o->tags.items[i].key, "container"))
			snprintf(text, sizeof(text), "%s", o->tags.items[i].value);
	proc_owner_unref(o);
	return text;
}

/*
 * If a target asks for trace contexts of a container, the filter entries of the container and of
 * all cgroups below it have the flag `context`. The pod's own cgroup has it only if it holds for
 * all of the pod's containers.
 */
static void test_trace_context_reaches_the_filter(void **state)
{
	(void)state;
	struct containers *p = NULL;
	const struct container_filter *f;
	struct plan *plan;
	bool changed;
	size_t n;

	assert_int_equal(proc_containers_new(&p), 0);
	proc_containers_cgroup(p, 10, 1, "/kubepods/pod" UID, false, 1 * S);
	proc_containers_cgroup(p, 11, 10, "/kubepods/pod" UID "/" ID, false, 1 * S);
	proc_containers_cgroup(p, 12, 11, "/kubepods/pod" UID "/" ID "/child", false, 1 * S);
	proc_containers_apply(p, testplan(UID, UID, ID, true), 2 * S);
	f = proc_containers_filter(p, 2 * S, &n, &changed);
	assert_int_equal(n, 3);
	assert_false(f[0].context || f[1].context || f[2].context);
	plan = testplan(UID, UID, ID, true);
	plan->pods[0].containers[0].trace_context = true;
	proc_containers_apply(p, plan, 3 * S);
	f = proc_containers_filter(p, 3 * S, &n, &changed);
	assert_true(changed);
	assert_int_equal(n, 3);
	assert_false(f[0].context);
	assert_true(f[1].context && f[2].context);
	plan = testplan(UID, UID, ID, true);
	plan->pods[0].containers[0].trace_context = plan->pods[0].arm_trace_context = true;
	proc_containers_apply(p, plan, 4 * S);
	f = proc_containers_filter(p, 4 * S, &n, &changed);
	assert_true(f[0].context && f[1].context && f[2].context);
	proc_containers_free(p);
}

static void test_selected_container(void **state)
{
	struct containers *p = make_procs();
	const struct container_filter *f;
	uint64_t until;
	struct owner *o;
	bool changed;
	size_t n;

	proc_containers_cgroup(p, 10, 1, "/kubepods/pod" UID, false, 1 * S);
	proc_containers_cgroup(p, 11, 10, "/kubepods/pod" UID "/" ID, false, 1 * S);
	proc_containers_cgroup(p, 12, 11, "/kubepods/pod" UID "/" ID "/child", false, 1 * S);
	proc_containers_cgroup(p, 20, 1, "/kubepods/pod" UID2 "/" ID2, false, 1 * S);
	assert_int_equal(n_filter(p, 1 * S, false), 0);
	proc_containers_apply(p, testplan(UID, UID, ID, false), 2 * S);
	assert_true(proc_containers_wants_scan(p));
	f = proc_containers_filter(p, 2 * S, &n, &changed);
	assert_true(changed);
	assert_int_equal(n, 2);
	assert_int_equal(f[0].cgroup_id, 11);
	assert_int_equal(f[1].cgroup_id, 12);
	assert_int_equal(f[1].sample_hz, 99);
	o = proc_containers_owner(p, 12, &until);
	assert_string_equal(o->container_id, ID);
	assert_string_equal(o->pod_uid, UID);
	assert_int_equal(o->n_targets, 1);
	assert_string_equal(o->target_uids[0], "t1");
	assert_true(until == UINT64_MAX);
	proc_owner_unref(o);
	assert_string_equal(container_of(p, 10, &until), "nobody");
	assert_string_equal(container_of(p, 20, &until), "nobody");
	/* With the same plan again, nothing is written to the kernel. */
	proc_containers_apply(p, testplan(UID, UID, ID, false), 3 * S);
	assert_int_equal(n_filter(p, 3 * S, false), 2);
	/* The container is not selected any more, but earlier samples still have their owner. */
	proc_containers_apply(p, NULL, 4 * S);
	assert_int_equal(n_filter(p, 4 * S, true), 0);
	assert_string_equal(container_of(p, 11, &until), "main");
	assert_true(until == 4 * S);
	assert_int_equal(n_filter(p, 70 * S, false), 0);
	assert_string_equal(container_of(p, 11, &until), "nobody");
	proc_containers_free(p);
	(void)state;
}

/* The container of a job is in the filter and has an owner before the API server reports its id. */
static void test_armed_pod(void **state)
{
	struct containers *p = make_procs();
	uint64_t until;
	struct owner *o;

	proc_containers_apply(p, testplan(UID, UID, NULL, true), 1 * S);
	assert_false(proc_containers_wants_scan(p));
	proc_containers_cgroup(p, 10, 1, "/kubepods/pod" UID, false, 2 * S);
	assert_int_equal(n_filter(p, 2 * S, true), 1);
	/* the sandbox */
	proc_containers_cgroup(p, 11, 10, "/kubepods/pod" UID "/" ID2, false, 2 * S);
	proc_containers_cgroup(p, 12, 10, "/kubepods/pod" UID "/" ID, false, 3 * S);
	proc_containers_cgroup(p, 13, 10, "/kubepods/pod" UID "/crio-conmon-" ID, false, 3 * S);
	assert_int_equal(n_filter(p, 3 * S, true), 3);
	o = proc_containers_owner(p, 12, &until);
	assert_true(o->unnamed);
	assert_string_equal(o->container_id, ID);
	assert_int_equal(o->n_targets, 1);
	proc_owner_unref(o);
	assert_string_equal(container_of(p, 12, &until), "");
	assert_string_equal(container_of(p, 13, &until), "nobody");
	/*
	 * Now the owner has the container's tags. The sandbox gets no id from the API server, and
	 * leaves the filter after a while.
	 */
	proc_containers_apply(p, testplan(UID, UID, ID, true), 4 * S);
	assert_string_equal(container_of(p, 12, &until), "main");
	assert_int_equal(n_filter(p, 40 * S, true), 2);
	container_of(p, 11, &until);
	assert_true(until == 40 * S);
	/* The container has ended, but late samples have their owner for a minute. */
	proc_containers_cgroup(p, 12, 10, "", true, 41 * S);
	assert_int_equal(n_filter(p, 41 * S, true), 1);
	assert_string_equal(container_of(p, 12, &until), "main");
	assert_true(until == 41 * S);
	n_filter(p, 102 * S, false);
	assert_string_equal(container_of(p, 12, &until), "nobody");
	proc_containers_free(p);
	(void)state;
}

static struct cgroup_scan *make_scan(uint64_t started_ns)
{
	struct cgroup_scan *s = xcalloc(1, sizeof(*s));

	s->started_ns = started_ns;
	return s;
}

static void scan_add(struct cgroup_scan *s, uint64_t id, uint64_t parent, const char *path)
{
	GROW(s->items, s->n, s->cap);
	s->items[s->n] = (struct scanned){.id = id, .parent_id = parent};
	assert_int_equal(proc_cgroup_parse_path(path, &s->items[s->n++].ref), 0);
}

static void test_scanned(void **state)
{
	struct containers *p = make_procs();
	struct cgroup_scan *s = make_scan(2 * S);
	uint64_t until;

	proc_containers_apply(p, testplan(UID, UID, ID, true), 1 * S);
	scan_add(s, 12, 10, "/kubepods/pod" UID "/" ID);
	scan_add(s, 10, 1, "/kubepods/pod" UID);
	/* a sandbox: the API server has reported the ids of all other containers of the pod */
	scan_add(s, 11, 10, "/kubepods/pod" UID "/" ID2);
	proc_containers_scanned(p, s, 3 * S);
	assert_false(proc_containers_wants_scan(p));
	assert_int_equal(n_filter(p, 3 * S, true), 2);
	assert_string_equal(container_of(p, 11, &until), "nobody");
	assert_string_equal(container_of(p, 12, &until), "main");
	proc_cgroup_scan_free(s);
	/*
	 * A cgroup that a scan does not find any more was removed, unless it was made after the
	 * scan began.
	 */
	proc_containers_cgroup(p, 14, 12, "/kubepods/pod" UID "/" ID "/late", false, 6 * S);
	s = make_scan(5 * S);
	scan_add(s, 10, 1, "/kubepods/pod" UID);
	proc_containers_scanned(p, s, 7 * S);
	assert_int_equal(n_filter(p, 7 * S, true), 2);
	container_of(p, 12, &until);
	assert_true(until == 7 * S);
	container_of(p, 14, &until);
	assert_true(until == UINT64_MAX);
	proc_cgroup_scan_free(s);
	proc_containers_free(p);
	(void)state;
}

/*
 * A container starts during a scan. The scan finds it before the agent reads the kernel's report of
 * it.
 */
static void test_scanned_before_it_was_told_89_92(void **state)
{
	struct containers *p = make_procs();
	struct cgroup_scan *s = make_scan(2 * S);
	uint64_t until;
	struct owner *o;

	proc_containers_apply(p, testplan(UID, UID, ID, true), 1 * S);
	scan_add(s, 10, 1, "/kubepods/pod" UID);
	scan_add(s, 11, 10, "/kubepods/pod" UID "/" ID2);
	proc_containers_scanned(p, s, 3 * S);
	proc_cgroup_scan_free(s);
	assert_int_equal(n_filter(p, 3 * S, true), 1);
	proc_containers_cgroup(p, 11, 10, "/kubepods/pod" UID "/" ID2, false, 3 * S);
	assert_int_equal(n_filter(p, 3 * S, true), 2);
	o = proc_containers_owner(p, 11, &until);
	assert_non_null(o);
	assert_string_equal(o->container_id, ID2);
	proc_owner_unref(o);
	proc_containers_free(p);
	(void)state;
}

/*
 * The path of a static pod contains the hash of its manifest. With kind, several nodes on one
 * kernel may have a pod with the same hash.
 */
static void test_static_pod(void **state)
{
	struct containers *p = make_procs();
	uint64_t until;

	proc_containers_apply(p, testplan(UID, HASH, ID, true), 1 * S);
	proc_containers_cgroup(p, 10, 1, "/kubepods/pod" HASH, false, 1 * S);
	proc_containers_cgroup(p, 11, 10, "/kubepods/pod" HASH "/" ID, false, 1 * S);
	assert_int_equal(n_filter(p, 1 * S, true), 2);
	proc_containers_cgroup(p, 20, 2, "/node2/kubepods/pod" HASH, false, 2 * S);
	proc_containers_cgroup(p, 21, 20, "/node2/kubepods/pod" HASH "/" ID2, false, 2 * S);
	assert_string_equal(container_of(p, 21, &until), "nobody");
	assert_string_equal(container_of(p, 11, &until), "main");
	proc_containers_free(p);
	(void)state;
}

static void note_container(uint64_t cgroup_id, struct owner *o, void *arg)
{
	assert_string_equal(o->container_id, ID);
	*(uint64_t *)arg = *(uint64_t *)arg * 100 + cgroup_id;
}

/* A cluster runs inside a container. The outer agent knows only the outer container. */
static void test_cluster_in_container(void **state)
{
#define INNER "/kubepods/pod" UID "/" ID "/kubepods/pod" UID2
	struct containers *p = make_procs();
	uint64_t until, seen = 0;

	proc_containers_apply(p, testplan(UID, UID, ID, false), 1 * S);
	proc_containers_cgroup(p, 11, 10, "/kubepods/pod" UID "/" ID, false, 1 * S);
	proc_containers_cgroup(p, 12, 11, "/kubepods/pod" UID "/" ID "/kubepods", false, 1 * S);
	proc_containers_cgroup(p, 13, 12, INNER, false, 1 * S);
	proc_containers_cgroup(p, 14, 13, INNER "/" ID2, false, 1 * S);
	assert_string_equal(container_of(p, 14, &until), "main");
	assert_int_equal(n_filter(p, 1 * S, true), 4);
	proc_containers_each_container(p, note_container, &seen);
	assert_int_equal(seen, 11); /* fn was called once, with the container's own cgroup */
	proc_containers_cgroup(p, 11, 10, "", true, 2 * S);
	proc_containers_each_container(p, note_container, &seen);
	assert_int_equal(seen, 11);
	proc_containers_free(p);
	(void)state;
}

/*
 * A pod that may make cgroups below its own gives them the names of another pod. They must not
 * count as that pod.
 */
static void test_names_that_are_anothers(void **state)
{
#define FORGED "/kubepods/pod" UID2 "/" ID2 "/kubepods/pod" UID
	struct containers *p = make_procs();
	uint64_t until;

	proc_containers_apply(p, testplan(UID, UID, ID, true), 1 * S);
	/*
	 * The forged cgroup exists before the real one. Until the real one is made, the forged one
	 * may be a cluster inside a container.
	 */
	proc_containers_cgroup(p, 5, 4, FORGED "/" C64(7), false, 1 * S);
	proc_containers_cgroup(p, 10, 1, "/kubepods/pod" UID, false, 2 * S);
	proc_containers_cgroup(p, 11, 10, "/kubepods/pod" UID "/" ID, false, 2 * S);
	assert_int_equal(n_filter(p, 2 * S, true), 2);
	container_of(p, 5, &until);
	assert_true(until == 2 * S);
	proc_containers_cgroup(p, 20, 4, FORGED, false, 3 * S);
	proc_containers_cgroup(p, 21, 20, FORGED "/" ID, false, 3 * S);
	proc_containers_cgroup(p, 22, 20, FORGED "/" C64(8), false, 3 * S);
	assert_int_equal(n_filter(p, 3 * S, false), 2);
	for (uint64_t id = 20; id <= 22; id++)
		assert_string_equal(container_of(p, id, &until), "nobody");
	assert_string_equal(container_of(p, 11, &until), "main");
	/* The forged cgroup also does not count after the real one has ended. */
	proc_containers_cgroup(p, 11, 10, "", true, 4 * S);
	proc_containers_cgroup(p, 10, 1, "", true, 4 * S);
	proc_containers_apply(p, testplan(UID, UID, ID, true), 5 * S);
	proc_containers_cgroup(p, 23, 20, FORGED "/" ID, false, 5 * S);
	assert_int_equal(n_filter(p, 5 * S, true), 0);
	proc_containers_free(p);
	(void)state;
}

/*
 * The forged cgroups are below a container that is selected itself: their samples belong to this
 * container.
 */
static void test_names_that_are_anothers_below_a_selected_one(void **state)
{
	struct containers *p = make_procs();
	struct plan *plan = testplan(UID, UID, ID, false), *more = testplan(UID2, UID2, ID2, false);
	struct owner *o;
	uint64_t until;

	testplan_take(plan, more);
	proc_containers_apply(p, plan, 1 * S);
	proc_containers_cgroup(p, 10, 1, "/kubepods/pod" UID "/" ID, false, 1 * S);
	proc_containers_cgroup(p, 11, 1, "/kubepods/pod" UID2 "/" ID2, false, 1 * S);
	proc_containers_cgroup(p, 12, 11, "/kubepods/pod" UID2 "/" ID2 "/kubepods", false, 1 * S);
	proc_containers_cgroup(p, 13, 12, FORGED, false, 1 * S);
	proc_containers_cgroup(p, 14, 13, FORGED "/" ID, false, 1 * S);
	o = proc_containers_owner(p, 14, &until);
	assert_non_null(o);
	assert_string_equal(o->container_id, ID2);
	proc_owner_unref(o);
	proc_containers_free(p);
	(void)state;
}

/*
 * The real container ended before the agent started. Another container of the node shows the depth
 * of containers.
 */
static void test_names_that_are_anothers_who_had_ended(void **state)
{
	struct containers *p = make_procs();
	struct plan *plan = testplan(UID, UID, ID, true);
	struct plan *more = testplan("c0ffee00-0000-4000-8000-000000000001",
				     "c0ffee00-0000-4000-8000-000000000001", C64(9), false);
	uint64_t until;

	testplan_take(plan, more);
	proc_containers_apply(p, plan, 1 * S);
	proc_containers_cgroup(p, 20, 4, FORGED, false, 1 * S);
	proc_containers_cgroup(p, 21, 20, FORGED "/" ID, false, 1 * S);
	proc_containers_cgroup(p, 30, 1,
			       "/kubepods/podc0ffee00-0000-4000-8000-000000000001/" C64(9), false,
			       2 * S);
	assert_int_equal(n_filter(p, 2 * S, true), 1);
	container_of(p, 21, &until);
	assert_true(until == 2 * S);
	proc_containers_cgroup(p, 22, 20, FORGED "/" C64(8), false, 3 * S);
	assert_int_equal(n_filter(p, 3 * S, false), 1);
	assert_string_equal(container_of(p, 22, &until), "nobody");
	assert_string_equal(container_of(p, 30, &until), "main");
	proc_containers_free(p);
	(void)state;
}

static void test_cap(void **state)
{
	struct containers *p = make_procs();
	const struct container_filter *f;
	bool changed;
	size_t n;

	proc_containers_apply(p, testplan(UID, UID, ID, false), 1 * S);
	proc_containers_cgroup(p, 11, 10, "/kubepods/pod" UID "/" ID, false, 1 * S);
	n_filter(p, 1 * S, true);
	proc_containers_cap_hz(p, proc_ns_hash("app"), ID, 7);
	f = proc_containers_filter(p, 1 * S, &n, &changed);
	assert_true(changed);
	assert_int_equal(f[0].sample_hz, 7);
	proc_containers_cap_hz(p, proc_ns_hash("app"), ID, 7);
	n_filter(p, 1 * S, false);
	proc_containers_cap_hz(p, proc_ns_hash("app"), ID, 0);
	f = proc_containers_filter(p, 1 * S, &n, &changed);
	assert_true(changed);
	assert_int_equal(f[0].sample_hz, 99);
	proc_containers_free(p);
	(void)state;
}

/*
 * The settings of each event are in the filter and in the owner of the samples. If one setting
 * changes, the filter changes.
 */
static void test_settings(void **state)
{
	struct event_settings s = {50, 3600000000, 524288, 4096, 20000};
	const unsigned mask = 1u << EVENT_OFF_CPU | 1u << EVENT_MEM_ALLOC;
	struct containers *p = make_procs();
	const struct container_filter *f;
	uint64_t until;
	struct owner *o;
	bool changed;
	size_t n;

	proc_containers_cgroup(p, 11, 10, "/kubepods/pod" UID "/" ID, false, 1 * S);
	for (unsigned i = 0; i < 3; i++) { /* the second plan equals the first; the third differs */
		struct plan *plan = testplan(UID, UID, ID, false);

		s.min_block_us += i == 2;
		plan->pods->containers->event_mask = mask;
		plan->pods->containers->sample_hz = 0;
		plan->pods->containers->settings = s;
		plan->pods->containers->overhead_percent = 2.5;
		proc_containers_apply(p, plan, 1 * S);
		f = proc_containers_filter(p, 1 * S, &n, &changed);
		assert_int_equal(changed, i != 1);
		assert_int_equal(n, 1);
		assert_int_equal(f[0].event_mask, mask);
		assert_int_equal(f[0].sample_hz, 0);
		assert_true(plan_event_settings_equal(&f[0].settings, &s));
		assert_true(f[0].off_keep == UINT32_MAX);
		o = proc_containers_owner(p, 11, &until);
		assert_int_equal(o->event_mask, mask);
		assert_true(plan_event_settings_equal(&o->settings, &s));
		assert_true(o->overhead_percent == 2.5);
		assert_true(o->off_keep == UINT32_MAX);
		proc_owner_unref(o);
	}
	proc_containers_free(p);
	(void)state;
}

static uint32_t keep_of_owner(struct containers *p, uint64_t cgroup)
{
	uint64_t until;
	struct owner *o = proc_containers_owner(p, cgroup, &until);
	uint32_t keep = o->off_keep;

	proc_owner_unref(o);
	return keep;
}

/*
 * The share of switches that is kept is in the filter and in the owner. A new plan does not change
 * it.
 */
static void test_keep_off(void **state)
{
	struct containers *p = make_procs();
	const struct container_filter *f;
	bool changed;
	size_t n;

	proc_containers_apply(p, testplan(UID, UID, ID, true), 1 * S);
	proc_containers_cgroup(p, 11, 10, "/kubepods/pod" UID "/" ID, false, 1 * S);
	proc_containers_cgroup(p, 12, 11, "/kubepods/pod" UID "/" ID "/inner", false, 1 * S);
	proc_containers_cgroup(p, 13, 10, "/kubepods/pod" UID "/" ID2, false, 1 * S);
	n_filter(p, 1 * S, true);
	proc_containers_cap_hz(p, proc_ns_hash("app"), ID, 7);
	proc_containers_keep_off(p, proc_ns_hash("app"), ID, 5000, 1000);
	/* the API server has not reported its id yet */
	proc_containers_keep_off(p, proc_ns_hash("app"), ID2, 6000, 2000);
	f = proc_containers_filter(p, 1 * S, &n, &changed);
	assert_true(changed);
	assert_int_equal(n, 3);
	assert_int_equal(f[0].off_keep, 1000);
	assert_int_equal(f[1].off_keep, 1000);
	assert_int_equal(f[2].off_keep, 2000);
	assert_int_equal(f[1].off_note, 5000);
	assert_int_equal(f[2].off_note, 6000);
	/* proc_containers_keep_off() does not change the limit of the rate */
	assert_int_equal(f[0].sample_hz, 7);
	assert_int_equal(keep_of_owner(p, 11), 1000);
	assert_int_equal(keep_of_owner(p, 12), 1000);
	assert_int_equal(keep_of_owner(p, 13), 2000);
	/* The pod is not in the next plan, but in the one after that. */
	proc_containers_apply(p, testplan(UID2, UID2, ID2, true), 2 * S);
	n_filter(p, 2 * S, true);
	proc_containers_apply(p, testplan(UID, UID, ID, true), 3 * S);
	f = proc_containers_filter(p, 3 * S, &n, &changed);
	assert_int_equal(f[0].off_keep, 1000);
	assert_int_equal(keep_of_owner(p, 11), 1000);
	/* The share that is noted is only in the filter. */
	proc_containers_keep_off(p, proc_ns_hash("app"), ID, 7000, 1000);
	f = proc_containers_filter(p, 3 * S, &n, &changed);
	assert_true(changed);
	assert_int_equal(f[0].off_note, 7000);
	proc_containers_keep_off(p, proc_ns_hash("app"), ID, UINT32_MAX, UINT32_MAX);
	f = proc_containers_filter(p, 3 * S, &n, &changed);
	assert_true(changed);
	assert_true(f[0].off_keep == UINT32_MAX && f[0].off_note == UINT32_MAX);
	assert_true(keep_of_owner(p, 11) == UINT32_MAX);
	assert_int_equal(f[0].sample_hz, 7);
	proc_containers_free(p);
	(void)state;
}

#define MAX_CAPS 4096 /* as in caps.c */

/* Gives n containers of the namespace a limit. Returns how many got one; the last is `last`. */
static unsigned cap_many(struct containers *p, const char *ns, unsigned n,
			 char last[CONTAINER_ID_BYTES])
{
	unsigned n_capped = 0;
	char id[CONTAINER_ID_BYTES];

	for (unsigned i = 0; i < n; i++) {
		snprintf(id, sizeof(id), "%016x%048x", i, *ns);
		if (!proc_containers_keep_off(p, proc_ns_hash(ns), id, 1000, 1000))
			continue;
		memcpy(last, id, sizeof(id));
		n_capped++;
	}
	return n_capped;
}

/*
 * More containers of a namespace have a limit than its share. For one more, the function returns
 * false, and the filter and the owner show that each switch is recorded.
 */
static void test_full_caps(void **state)
{
	struct counter *dropped = counter("podflame_container_limits_dropped_total", NULL, NULL);
	uint64_t before = counter_get(dropped), ns = proc_ns_hash("app");
	struct containers *p = make_procs();
	const struct container_filter *f;
	char id[CONTAINER_ID_BYTES];
	bool changed;
	size_t n;

	proc_containers_apply(p, testplan(UID, UID, ID, true), 1 * S);
	proc_containers_cgroup(p, 11, 10, "/kubepods/pod" UID "/" ID, false, 1 * S);
	assert_int_equal(cap_many(p, "app", MAX_CAPS / 4 * 3, id), MAX_CAPS / 4 * 3);
	assert_int_equal(counter_get(dropped), before);
	assert_false(proc_containers_keep_off(p, ns, ID, 1000, 1000));
	assert_int_equal(counter_get(dropped), before + 1);
	f = proc_containers_filter(p, 1 * S, &n, &changed);
	assert_true(f[0].off_keep == UINT32_MAX);
	assert_true(keep_of_owner(p, 11) == UINT32_MAX);
	assert_true(proc_containers_keep_off(p, ns, id, UINT32_MAX, UINT32_MAX));
	assert_true(proc_containers_keep_off(p, ns, ID, 1000, 1000));
	assert_int_equal(counter_get(dropped), before + 1);
	f = proc_containers_filter(p, 1 * S, &n, &changed);
	assert_int_equal(f[0].off_keep, 1000);
	assert_int_equal(keep_of_owner(p, 11), 1000);
	proc_containers_free(p);
	(void)state;
}

/*
 * Containers of another namespace get limits beside it, and one that has a limit can always get
 * another one.
 */
static void limits_of_one_namespace_leave_room(void **state)
{
	struct containers *p = make_procs();
	char id[CONTAINER_ID_BYTES];

	(void)state;
	assert_int_equal(cap_many(p, "greedy", MAX_CAPS + 1, id), MAX_CAPS / 4 * 3);
	assert_true(proc_containers_keep_off(p, proc_ns_hash("app"), ID, 1000, 1000));
	assert_true(proc_containers_keep_off(p, proc_ns_hash("greedy"), id, 500, 500));
	assert_int_equal(proc_caps_of(&p->caps, id)->off_keep, 500);
	assert_int_equal(proc_caps_of(&p->caps, ID)->off_keep, 1000);
	proc_containers_free(p);
}

static void test_many_ended(void **state)
{
	struct containers *p = make_procs();
	uint64_t until;
	char path[128];

	proc_containers_apply(p, testplan(UID, UID, ID, false), 1 * S);
	proc_containers_cgroup(p, 11, 10, "/kubepods/pod" UID "/" ID, false, 1 * S);
	for (unsigned i = 0; i < 5000; i++) {
		snprintf(path, sizeof(path), "/kubepods/pod" UID "/" ID "/%u", i);
		proc_containers_cgroup(p, 100 + i, 11, path, false, 1 * S);
		proc_containers_cgroup(p, 100 + i, 11, path, true, 2 * S);
	}
	n_filter(p, 2 * S, true);
	assert_string_equal(container_of(p, 100, &until), "nobody");
	assert_string_equal(container_of(p, 5099, &until), "main");
	proc_containers_free(p);
	(void)state;
}

/* Cgroups that never end fill the table. One more cgroup is counted, and not profiled. */
static void test_table_full(void **state)
{
	struct counter *dropped = counter("podflame_cgroups_dropped_total", "reason", "table_full");
	struct containers *p = make_procs();
	uint64_t until, before = counter_get(dropped);
	char path[128];

	proc_containers_apply(p, testplan(UID, UID, ID, false), 1 * S);
	for (unsigned i = 0; i < 65536; i++) {
		snprintf(path, sizeof(path), "/kubepods/pod" UID "/%064x", i);
		proc_containers_cgroup(p, 100 + i, 10, path, false, 1 * S);
	}
	assert_int_equal(counter_get(dropped), before);
	proc_containers_cgroup(p, 11, 10, "/kubepods/pod" UID "/" ID, false, 1 * S);
	assert_int_equal(counter_get(dropped), before + 1);
	assert_string_equal(container_of(p, 11, &until), "nobody");
	proc_containers_cgroup(p, 100, 10, "", true, 2 * S);
	proc_containers_cgroup(p, 11, 10, "/kubepods/pod" UID "/" ID, false, 2 * S);
	assert_string_equal(container_of(p, 11, &until), "main");
	proc_containers_free(p);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_trace_context_reaches_the_filter),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_long_names),
		cmocka_unit_test(test_choose),
		cmocka_unit_test(test_scan_v1),
		cmocka_unit_test(test_scan_v2),
		cmocka_unit_test(test_scan_limit),
		cmocka_unit_test(test_scan_not_permitted),
		cmocka_unit_test(test_id_of_missing),
		cmocka_unit_test(test_selected_container),
		cmocka_unit_test(test_armed_pod),
		cmocka_unit_test(test_scanned),
		cmocka_unit_test(test_scanned_before_it_was_told_89_92),
		cmocka_unit_test(test_static_pod),
		cmocka_unit_test(test_cluster_in_container),
		cmocka_unit_test(test_names_that_are_anothers),
		cmocka_unit_test(test_names_that_are_anothers_below_a_selected_one),
		cmocka_unit_test(test_names_that_are_anothers_who_had_ended),
		cmocka_unit_test(test_cap),
		cmocka_unit_test(test_settings),
		cmocka_unit_test(test_keep_off),
		cmocka_unit_test(test_full_caps),
		cmocka_unit_test(limits_of_one_namespace_leave_room),
		cmocka_unit_test(test_many_ended),
		cmocka_unit_test(test_table_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
