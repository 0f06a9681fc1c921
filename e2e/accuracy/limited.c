/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limited PID PERCENT EVENT...: runs an agent's node, without an API server, with one container.
 * The container has the process PID, and limits.overheadPercent is PERCENT. Prints "recording" when
 * it has begun and "decided" when it knows what each event costs. At the end of its input, it
 * prints what it has decided, and ends; the process is in the topmost cgroup then. For slowdown.py.
 */
#include "node/internal.h"
#include "node/limit/internal.h"
#include "node/plan/testplan.h"

#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/testdir.h"

/* directories below the top of the hierarchy: kubepods, pod, container */
#define N_DIRS	3
#define DUE_NS	(10 * NSEC_PER_SEC) /* deadline for the last process to leave the cgroup */
#define POD_UID "401b6bf6-91e0-4a28-870a-232376283f12"

/*
 * The container's cgroup in one hierarchy. With cgroup v1 there are two: the hierarchy that
 * distinguishes containers, and the one that counts CPU time.
 */
struct place {
	char *mount, *dirs[N_DIRS];
};
struct container {
	struct place places[2];
	size_t n_places;
	char id[CONTAINER_ID_BYTES];
};

static void enter(const char *dir, const char *pid)
{
	_cleanup_free_ char *path = xasprintf("%s/cgroup.procs", dir);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, pid, strlen(pid)) < 0)
		warn("%s: %s", path, pid);
}

static void place_new(struct container *c, const char *mount, const char *pid)
{
	struct place *p = &c->places[c->n_places];

	if (!*mount || (c->n_places && streq(c->places[0].mount, mount)))
		return;
	c->n_places++;
	p->mount = xstrdup(mount);
	p->dirs[0] = xasprintf("%s/kubepods-limited-%d", mount, getpid());
	p->dirs[1] = xasprintf("%s/pod" POD_UID, p->dirs[0]);
	p->dirs[2] = xasprintf("%s/%s", p->dirs[1], c->id);
	for (size_t i = 0; i < N_DIRS; i++)
		if (mkdir(p->dirs[i], 0755) < 0)
			err(1, "%s", p->dirs[i]);
	enter(p->dirs[2], pid);
}

static void container_new(struct container *c, const char *pid)
{
	struct cgroup_hierarchy h;
	struct field_error error = {0};

	if (proc_cgroup_choose("", &h, &error) < 0)
		errx(1, "cgroup hierarchy: %s", error.reason);
	snprintf(c->id, sizeof(c->id), "%064x", (unsigned)getpid());
	place_new(c, h.mount, pid);
	place_new(c, h.cpuacct_mount, pid);
}

static void place_free(struct place *p, const char *pid)
{
	uint64_t due_ns = now_mono_ns() + DUE_NS;

	if (kill(atoi(pid), 0) == 0)
		enter(p->mount, pid);
	for (size_t i = N_DIRS; i-- > 0;) {
		while (rmdir(p->dirs[i]) < 0 && errno == EBUSY && now_mono_ns() < due_ns)
			usleep(1000);
		free(p->dirs[i]);
	}
	free(p->mount);
}

/* Returns the plan for a target that sets only the events and the limit. */
static struct plan *plan_of(const struct container *c, double percent, unsigned event_mask)
{
	struct plan *plan = testplan(POD_UID, POD_UID, c->id, true);
	struct plan_container *container = plan->pods[0].containers;

	container->event_mask = event_mask;
	container->overhead_percent = percent;
	container->settings = (struct event_settings){.min_block_us = 50,
						      .alloc_sample_bytes = 524288,
						      .inuse_sample_bytes = 524288,
						      .max_stall_us = 20000};
	plan->pods[0].arm_event_mask = event_mask;
	plan->pods[0].arm_settings = container->settings;
	return plan;
}

static int throw_away(const void *body, size_t n, void *arg)
{
	(void)body;
	(void)n;
	(void)arg;
	return 0;
}

static void input_ended(int fd, void *arg)
{
	char bytes[64];

	if (read(fd, bytes, sizeof(bytes)) == 0)
		loop_stop(arg, 0);
}

/* ---- what is decided ---- */

struct decisions {
	struct timer poll;
	struct loop *loop;
	struct node *node;
	unsigned event_mask;
};

/*
 * Whether the node knows the cost of an event. off-cpu: it has measured one round; memory: short
 * trials, in which the probes were attached, have shown the cost.
 */
static bool is_decided(const struct payer *p, enum event e)
{
	return e == EVENT_OFF_CPU ? p->cpu_at_ns > 0 && p->of[e].last.hits > 0 : p->of[e].tried;
}

static void look(void *arg)
{
	struct decisions *d = arg;
	const struct payer *p = d->node->limit->payers;

	for (enum event e = EVENT_OFF_CPU; p && e < _EVENT_MAX; e++)
		if (d->event_mask & 1u << e && !is_decided(p, e))
			p = NULL;
	if (p)
		puts("decided");
	else
		timer_set(d->loop, &d->poll, NSEC_PER_SEC / 10, look, d);
}

static void say_decisions(const struct payer *p, unsigned event_mask)
{
	static const char *const names[] = {[LIMIT_STEADY] = "attached all the time",
					    [LIMIT_SPANS] = "in spans",
					    [LIMIT_REFUSED] = "refused"};

	for (enum event e = EVENT_OFF_CPU; e < _EVENT_MAX; e++) {
		const char *name = profile_event_info(e)->name;

		if (!(event_mask & 1u << e))
			continue;
		if (!p || !is_decided(p, e))
			printf("%s: not decided\n", name);
		else if (e == EVENT_OFF_CPU)
			printf("%s: %.3g %% of its waits noted, %.3g %% looked at\n", name,
			       p->off.note / (UINT32_MAX / 100.0),
			       p->off.keep / (UINT32_MAX / 100.0));
		else
			printf("%s: %s\n", name, names[p->of[e].mode]);
	}
}

/* ---- the node ---- */

static void run(const struct container *c, double percent, unsigned event_mask)
{
	char data[TESTDIR_BYTES];
	struct config conf;
	struct node_config node_config = {.conf = &conf, .direct = throw_away};
	struct field_error error = {0};
	struct decisions d = {.event_mask = event_mask};
	struct watch *input;

	conf_init(&conf);
	if (testdir_make(data) < 0 || loop_new(&d.loop) < 0)
		errx(1, "no folder of its own, or no loop");
	free(conf.data_dir);
	conf.data_dir = xstrdup(data);
	if (node_new(d.loop, &node_config, &d.node, &error) < 0)
		errx(1, "node: %s: %s", error.path, error.reason);
	if (node_start(d.node, "node-uid") < 0 ||
	    watch_new(d.loop, STDIN_FILENO, input_ended, d.loop, &input) < 0)
		errx(1, "the node does not start");
	proc_containers_apply(d.node->containers, plan_of(c, percent, event_mask), now_boot_ns());
	kernel_sync(d.node->kernel);
	puts("recording");
	timer_set(d.loop, &d.poll, 0, look, &d);
	loop_run(d.loop);
	timer_cancel(&d.poll);
	say_decisions(d.node->limit->payers, event_mask);
	node_free(d.node);
	watch_free(input);
	loop_free(d.loop);
	testdir_remove(data);
	conf_done(&conf);
}

int main(int argc, char **argv)
{
	struct container c = {0};
	unsigned event_mask = 0;

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	for (int i = 3; i < argc; i++)
		for (enum event e = 0; e < _EVENT_MAX; e++)
			event_mask |= streq(argv[i], profile_event_info(e)->name) ? 1u << e : 0;
	if (!event_mask)
		errx(2, "use: limited PID PERCENT EVENT...");
	setvbuf(stdout, NULL, _IOLBF, 0);
	container_new(&c, argv[1]);
	run(&c, atof(argv[2]), event_mask);
	for (size_t i = 0; i < c.n_places; i++)
		place_free(&c.places[i], argv[1]);
	return 0;
}
