// SPDX-License-Identifier: Apache-2.0
/*
 * What record says of memory that its probes did not see. The test stands in for probes and
 * processes.
 */
#include "cli/record.h"
#include "node/learn/go_heap_drain.h"
#include "node/learn/sites.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1ull << 20)

/* ---- all around it ---- */

static struct alloc_sites found; /* by the next look */
static struct mapping library = {.inode = 1};
static struct mappings maps = {.items = &library, .n = 1, .id = {1000, 8}};
static uint64_t anon_bytes;

int learn_alloc_sites(struct files *f, const struct mappings *m, unsigned event_mask,
		      struct alloc_sites **ret)
{
	(void)f;
	assert_ptr_equal(m, &maps);
	assert_int_equal(event_mask, 1u << EVENT_MEM_INUSE);
	*ret = xmemdup(&found, sizeof(found));
	return 0;
}

struct alloc_sites *alloc_sites_free(struct alloc_sites *s)
{
	free(s);
	return NULL;
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

int proc_memory(struct process_id id, struct proc_memory *ret)
{
	assert_int_equal(id.tgid, 8);
	assert_int_equal(id.start_boottime_ns, 1000);
	*ret = (struct proc_memory){anon_bytes, anon_bytes, 1};
	return 0;
}

int probes_attach(struct probes *p, struct process_id id, const struct pf_mem_proc *proc,
		  const struct probe_file *files, size_t n, struct attached **ret,
		  struct probes_refused *ret_refused)
{
	(void)p;
	(void)id;
	(void)proc;
	(void)files;
	(void)n;
	(void)ret_refused;
	*ret = (struct attached *)&maps; /* any */
	return 0;
}

int probes_attach_change(struct probes *p, struct attached *a, const struct pf_mem_proc *proc,
			 const struct probe_file *files, size_t n,
			 struct probes_refused *ret_refused)
{
	(void)p;
	(void)a;
	(void)proc;
	(void)files;
	(void)n;
	(void)ret_refused;
	fail_msg("it has the same places");
	return 0;
}

struct attached *probes_detach(struct probes *p, struct attached *a)
{
	(void)p;
	(void)a;
	return NULL;
}

uint64_t probes_attached_bytes(const struct attached *a)
{
	(void)a;
	return 0;
}

bool probes_attached_lost(const struct attached *a)
{
	(void)a;
	return false;
}

int probes_announce(struct probes *p)
{
	(void)p;
	return 0;
}

void probes_live_ask(struct probes *p)
{
	(void)p;
}

uint64_t probes_trap_ns(struct probes *p)
{
	(void)p;
	return 0;
}

int probes_usage(struct probes *p, struct probe_usage **ret, size_t *ret_n)
{
	(void)p;
	(void)ret;
	(void)ret_n;
	return -ENOENT;
}

void cli_record_read_mappings(struct recording *r, struct process_id id, uint32_t exec_id,
			      uint32_t stack)
{
	(void)r;
	(void)id;
	(void)exec_id;
	(void)stack;
}

void cli_record_samples(struct recording *r, struct drain *d)
{
	(void)r;
	(void)d;
}

int learn_go_heap(struct alloc_go_heap *g, const struct go_process *who, struct drain **ret)
{
	(void)g;
	(void)who;
	(void)ret;
	return -ENODATA;
}

/* ---- the tests ---- */

static const struct record_options options = {
	.event = EVENT_MEM_INUSE,
	.settings.alloc_sample_bytes = 1,
};

/* The text that it prints at its end. */
static char *printed(struct recording *r)
{
	int saved = dup(2);
	FILE *f = tmpfile();
	char text[4096] = "";

	assert_non_null(f);
	assert_true(dup2(fileno(f), 2) == 2);
	cli_record_heaps_print(r);
	assert_true(dup2(saved, 2) == 2);
	close(saved);
	rewind(f);
	(void)!fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	return xstrdup(text);
}

static void grow(struct recording *r)
{
	anon_bytes += 100 * MIB;
	cli_record_heaps_read(r);
}

/* Its C library is mapped first, its JVM later; for mem-inuse the JVM has no places. */
static void a_jvm_that_comes_later_has_its_own_heap(void **state)
{
	struct recording r = {.options = &options};
	struct alloc_site site = {.file_offset = 64};
	_cleanup_free_ char *before = NULL, *after = NULL;

	(void)state;
	found = (struct alloc_sites){.items = &site, .n = 1};
	cli_record_heap_look(&r, &maps);
	grow(&r);
	before = printed(&r);
	assert_non_null(strstr(before, "its memory grew by 100 MiB"));
	found.own_heap = true;
	snprintf(found.problem, sizeof(found.problem), "no Java objects");
	cli_record_heap_look(&r, &maps);
	grow(&r);
	after = printed(&r);
	assert_null(strstr(after, "its memory grew"));
	assert_non_null(strstr(after, "the profile lacks a part of its memory: no Java objects"));
	cli_record_heaps_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_jvm_that_comes_later_has_its_own_heap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
