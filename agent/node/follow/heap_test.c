// SPDX-License-Identifier: Apache-2.0
/*
 * What the agent does with a second look for a process's places of allocation. This thread stands
 * in for the workers.
 */
#include "node/follow/internal.h"
#include "node/learn/go_heap_drain.h"
#include "node/limit/limit.h"
#include "node/learn/sites.h"
#include "node/proc/testowner.h"
#include "node/work/testworkers.h"

#include "lib/base/testclock.h"

#define EVENTS (1u << EVENT_MEM_INUSE)

/* ---- all around it ---- */

static struct tracked *tracked;
static struct mapping library = {.inode = 1};
static struct mappings maps = {.items = &library, .n = 1};
static struct alloc_sites found; /* by the next look */
static unsigned n_attached, n_forgotten;

struct tracked *follow_find(const struct follow *f, struct process_id id)
{
	(void)f;
	return id.tgid == tracked->id.tgid ? tracked : NULL;
}

enum limit_mode limit_mode(struct limit *l, uint64_t cgroup_id, enum event e,
			   struct limit_span *ret)
{
	(void)l;
	(void)cgroup_id;
	(void)e;
	(void)ret;
	return LIMIT_STEADY;
}

struct mappings *proc_mappings_ref(struct mappings *m)
{
	return m;
}

struct mappings *proc_mappings_unref(struct mappings *m)
{
	(void)m;
	return NULL;
}

int proc_mappings_read(struct process_id id, uint32_t exec_id, struct mappings **ret)
{
	(void)id;
	(void)exec_id;
	*ret = &maps;
	return 0;
}

int learn_alloc_sites(struct files *f, const struct mappings *m, unsigned event_mask,
		      struct alloc_sites **ret)
{
	(void)f;
	assert_ptr_equal(m, &maps);
	assert_int_equal(event_mask, EVENTS);
	*ret = xmemdup(&found, sizeof(found));
	(*ret)->items = xmemdup(found.items, found.n * sizeof(*found.items));
	return 0;
}

struct alloc_sites *alloc_sites_free(struct alloc_sites *s)
{
	if (s)
		free(s->items);
	free(s);
	return NULL;
}

void follow_heap_attach(struct tracked *t, unsigned event_mask, const struct limit_span *span)
{
	assert_ptr_equal(t, tracked);
	assert_int_equal(event_mask, EVENTS);
	assert_null(span);
	t->allocs.attached = (struct attached *)&n_attached; /* any */
	t->allocs.attached_mask = event_mask;
	n_attached++;
}

void follow_heap_detach(struct tracked *t)
{
	t->allocs.attached = NULL;
}

void follow_heap_detach_all(struct follow *f)
{
	(void)f;
}

void follow_unseen_tick(struct follow *f)
{
	(void)f;
}

void follow_unseen_forget(struct tracked *t)
{
	assert_ptr_equal(t, tracked);
	n_forgotten++;
}

bool kernel_active(const struct kernel *k)
{
	(void)k;
	return true;
}

struct probes *kernel_probes(const struct kernel *k)
{
	(void)k;
	return NULL;
}

void probes_attach_no_more(struct probes *p)
{
	(void)p;
}

int learn_go_heap(struct alloc_go_heap *g, const struct go_process *who, struct drain **ret)
{
	(void)g;
	(void)who;
	(void)ret;
	return -ENODATA;
}

void alloc_go_begin_anew(struct alloc_go_heap *g)
{
	(void)g;
}

/* ---- the tests ---- */

static void read_mappings(void *arg, struct process_id id, uint32_t exec_id, uint64_t cgroup_id)
{
	(void)arg;
	(void)id;
	(void)exec_id;
	(void)cgroup_id;
	fail_msg("its mappings are known");
}

static void sampled(void *arg, struct drain *d)
{
	(void)arg;
	(void)d;
}

static const struct follow_ops ops = {.read_mappings = read_mappings, .sampled = sampled};
static struct work node_work;
static struct follow follow = {.config = {.work = &node_work, .ops = &ops}};
static struct alloc_site items[2] = {{.file_offset = 64, .address = 4160},
				     {.file_offset = 128, .address = 4224}};

static int set_up(void **state)
{
	struct plan *plan = testowner_plan();

	(void)state;
	testwork(&node_work);
	follow.config.containers = node_work.containers;
	plan->pods->containers->event_mask = EVENTS;
	testowner_apply(node_work.containers, plan);
	tracked = xcalloc(1, sizeof(*tracked));
	tracked->follow = &follow;
	tracked->id = (struct process_id){1000, 8};
	tracked->cgroup_id = TEST_CGROUP;
	tracked->m = &maps;
	found = (struct alloc_sites){.items = items, .n = 1};
	n_attached = n_forgotten = 0;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	posted_run_all();
	follow_heap_reset(tracked);
	free(tracked);
	return 0;
}

static void look_once(void)
{
	follow_heap_look(tracked, &maps);
	posted_run_all();
}

/* Its C library is mapped first, its JVM later; for mem-inuse the JVM has no places. */
static void a_jvm_that_comes_later_has_its_own_heap(void **state)
{
	const struct allocs *a = &tracked->allocs;

	(void)state;
	look_once();
	assert_int_equal(n_attached, 1);
	assert_false(a->sites->own_heap);
	assert_int_equal(n_forgotten, 0);
	found.own_heap = true;
	snprintf(found.problem, sizeof(found.problem), "no Java objects");
	look_once();
	assert_true(a->sites->own_heap);
	assert_string_equal(a->sites->problem, "no Java objects");
	assert_string_equal(a->problem, "no Java objects");
	assert_int_equal(n_forgotten, 1); /* the memory that seemed unseen was the JVM's */
	assert_int_equal(n_attached, 1);
	assert_false(a->stale);
}

static void other_places_are_attached_anew(void **state)
{
	(void)state;
	look_once();
	look_once();
	assert_int_equal(n_attached, 1);
	found.n = 2;
	look_once();
	assert_int_equal(n_attached, 2);
	assert_int_equal(tracked->allocs.sites->n, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_jvm_that_comes_later_has_its_own_heap, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(other_places_are_attached_anew, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
