// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the functions of the real libibverbs, if it is installed, and those of a provider without
 * symbols, whose addresses are those that a process names: right ones, and ones that it made up.
 * This process has the provider.
 */
#include "node/alloc/testalloc.h"

#include <dlfcn.h>

#include "lib/base/testfolder.h"
#include "node/alloc/internal.h"

#define RDMA (1u << PF_EVENT_RDMA)

/* ---- the real library ---- */

static void the_real_library_is_found(void **state)
{
	static const struct {
		const char *name;
		uint8_t kind;
	} want[] = {
		{"ibv_reg_mr", PF_SITE_RDMA_REGISTER},
		{"ibv_reg_mr_iova2", PF_SITE_RDMA_REGISTER},
		{"ibv_open_device", PF_SITE_RDMA_OPEN},
		{"ibv_qp_to_qp_ex", PF_SITE_RDMA_EXTEND},
		{"ibv_modify_qp", PF_SITE_RDMA_MODIFY},
		{"ibv_create_cq", PF_SITE_RDMA_CONTEXT},
		{"ibv_get_cq_event", PF_SITE_RDMA_USED},
	};
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);
	struct alloc_process p;
	struct alloc_sites *s;

	(void)state;
	if (!library) {
		print_message("skipped: libibverbs.so.1 is not installed\n");
		skip();
	}
	s = alloc_find(&p, getpid(), RDMA);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		const struct alloc_site *x = alloc_site_of(s, want[i].name);

		if (!x)
			fail_msg("%s is not found", want[i].name);
		assert_int_equal(x->site.kind, want[i].kind);
		/* dlsym() gives the newest version */
		assert_int_equal(x->address, (uintptr_t)dlsym(library, want[i].name));
	}
	assert_non_null(strstr(s->problem, "does not see its requests yet"));
	alloc_sites_free(s);
	alloc_process_close(&p);
	dlclose(library);
}

/* Without libibverbs there is nothing to probe, and nothing to tell. */
static void a_process_without_it_has_nothing(void **state)
{
	struct alloc_process p;
	struct alloc_sites *s = alloc_find(&p, getpid(), RDMA);

	(void)state;
	assert_int_equal(s->n, 0);
	assert_string_equal(s->problem, "");
	alloc_sites_free(s);
	alloc_process_close(&p);
}

/* ---- a provider without symbols ---- */

#define SOURCE                                                                                     \
	"#include <stdio.h>\n"                                                                     \
	"void *ibv_open_device(void) { return 0; }\n"                                              \
	"void *ibv_create_qp(void) { return 0; }\n"                                                \
	"int ibv_modify_qp(void) { return 0; }\n"                                                  \
	"int ibv_get_cq_event(void) { return 0; }\n"                                               \
	"static int post_send(long *q, long *wr, long **bad)\n"                                    \
	"{ for (long i = 0; i < q[0]; i++) printf(\"%ld\", wr[i]); *bad = wr; return q[1]; }\n"    \
	"static int wr_complete(long *q) { return q[3] + 0x12345678; }\n"                          \
	"static void wr_send(long *q) { q[7] = 0x1122334455667788; }\n"                            \
	"void *functions[] = {post_send, wr_complete, wr_send};\n"

static void *provider;

/* Builds the library with these options, and loads it into this process. */
static void load(const char *options)
{
	static unsigned n;
	_cleanup_free_ char *path = xasprintf("%s/provider%u.so", dir, ++n),
			    *source = file_in_dir("provider.c");
	_cleanup_free_ char *command =
		xasprintf("gcc -O2 -s -shared -fPIC %s -o %s %s", options, path, source);

	assert_int_equal(file_write_atomic(source, SOURCE, strlen(SOURCE), 0600), 0);
	assert_int_equal(system(command), 0);
	provider = dlopen(path, RTLD_NOW);
	assert_non_null(provider);
}

static uint64_t function(unsigned i)
{
	void **functions = dlsym(provider, "functions");

	return (uintptr_t)functions[i];
}

static void unload(struct alloc_process *p, struct alloc_sites *s)
{
	alloc_sites_free(s);
	alloc_process_close(p);
	dlclose(provider);
}

/* The sites that the finder adds if the BPF programs have read these addresses. */
static struct alloc_sites *find_with(struct alloc_process *p, const struct pf_rdma_functions *f)
{
	struct alloc_sites *s = NULL;
	struct runtime_look look;

	alloc_process_open(p, getpid());
	look = alloc_process_look(p);
	look.rdma = f;
	assert_int_equal(alloc_sites_find(&look, RDMA, &s), 0);
	return s;
}

static const struct alloc_site *site_at(const struct alloc_sites *s, uint64_t address)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->items[i].address == address)
			return &s->items[i];
	return NULL;
}

static void check_provider(const char *options)
{
	struct pf_rdma_functions f = {.n = 3};
	struct alloc_process p;
	struct alloc_sites *s;

	load(options);
	f.items[0] = (struct pf_rdma_function){function(0), PF_RDMA_POST_SEND, 0};
	f.items[1] = (struct pf_rdma_function){function(1), PF_RDMA_WR_COMPLETE, 0};
	f.items[2] = (struct pf_rdma_function){function(2), PF_RDMA_WR_SEND, 0};
	s = find_with(&p, &f);
	assert_string_equal(s->problem, "");
	assert_int_equal(site_at(s, function(0))->site.kind, PF_SITE_RDMA_POST_SEND);
	assert_int_equal(site_at(s, function(1))->site.kind, PF_SITE_RDMA_COMPLETE);
	assert_int_equal(site_at(s, function(2))->site.kind, PF_SITE_RDMA_REQUEST);
	assert_int_equal(site_at(s, function(2))->site.flags, PF_RDMA_SEND);
	assert_string_equal(site_at(s, function(0))->symbol, "post_send");
	/* what is called for each completion is probed only as long as no provider is known */
	assert_null(alloc_site_of(s, "ibv_get_cq_event"));
	assert_int_equal(s->n_functions, 3);
	assert_non_null(alloc_site_of(s, "ibv_modify_qp"));
	unload(&p, s);
}

static void functions_without_symbols_are_probed(void **state)
{
	(void)state;
	check_provider("-fcf-protection=none");
	check_provider("-fcf-protection=branch");
	/* without unwind tables, endbr64 shows that a function begins */
	check_provider("-fcf-protection=branch -fno-asynchronous-unwind-tables -fno-unwind-tables");
	check_provider("-fno-omit-frame-pointer -fstack-protector-all");
}

/* ---- addresses that a process made up ---- */

static void assert_refused(uint64_t address, enum pf_rdma_slot slot, bool told)
{
	struct pf_rdma_functions f = {.n = 1, .items = {{address, slot, 0}}};
	struct alloc_process p;
	struct alloc_sites *s = find_with(&p, &f);

	if (site_at(s, address))
		fail_msg("a probe would be set at offset %ld of the function",
			 (long)(address - function(0)));
	assert_int_equal(strstr(s->problem, "no function at an address of") != NULL, told);
	alloc_sites_free(s);
	alloc_process_close(&p);
}

static char data[64];

static void addresses_without_a_function_are_refused(void **state)
{
	_cleanup_free_ char *heap = xcalloc(1, 64);
	char stack[64];

	(void)state;
	load("-fcf-protection=none");
	assert_refused((uintptr_t)stack, PF_RDMA_POST_SEND, true);
	assert_refused((uintptr_t)heap, PF_RDMA_POST_SEND, true);
	assert_refused((uintptr_t)data, PF_RDMA_POST_SEND, true);
	assert_refused(8, PF_RDMA_POST_SEND, true);
	assert_refused(UINT64_MAX, PF_RDMA_POST_SEND, true);
	/*
	 * an older library lacks these slots, so their values may be anything: no problem is
	 * reported
	 */
	assert_refused((uintptr_t)data, PF_RDMA_WR_FLUSH, false);
	assert_refused((uintptr_t)data, PF_RDMA_WR_ATOMIC_WRITE, false);
	assert_refused(function(0), PF_RDMA_WR_SET_UD_ADDR, false); /* needs no probe */
	assert_refused(function(0), _PF_RDMA_SLOT_MAX, false);
	dlclose(provider);
}

/*
 * In the middle of an instruction, a probe would change the instruction. Where the return address
 * is not on top of the stack, a probed return would end the process.
 */
static void the_middle_of_a_function_is_refused(void **state)
{
	(void)state;
	load("-fcf-protection=none -fno-omit-frame-pointer");
	/* push %rbp; mov ..., %rbp: after one byte, the stack has another word */
	for (unsigned i = 1; i < 24; i++)
		assert_refused(function(0) + i, PF_RDMA_POST_SEND, true);
	dlclose(provider);
	load("-fcf-protection=none");
	/* movabs: ten bytes, and then there is only one word on the stack */
	for (unsigned i = 1; i < 10; i++)
		assert_refused(function(2) + i, PF_RDMA_WR_SEND, true);
	dlclose(provider);
	load("-fcf-protection=none -fno-asynchronous-unwind-tables -fno-unwind-tables");
	assert_refused(function(0), PF_RDMA_POST_SEND, true); /* no sign of a function's start */
	dlclose(provider);
}

/*
 * A linker may make one function of two. It has one probe, and is a problem only if its calls count
 * in different ways.
 */
static void a_function_for_several_requests_is_told(void **state)
{
	static const struct {
		enum pf_rdma_slot first, second;
		bool told;
	} cases[] = {
		{PF_RDMA_WR_SEND, PF_RDMA_WR_SEND_IMM, false},
		{PF_RDMA_WR_SEND, PF_RDMA_WR_RDMA_WRITE, true},
		{PF_RDMA_POST_SEND, PF_RDMA_POST_RECV, true},
	};

	(void)state;
	load("");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct pf_rdma_functions f = {.n = 2,
					      .items = {{function(0), cases[i].first, 0},
							{function(0), cases[i].second, 0}}};
		struct alloc_process p;
		struct alloc_sites *s = find_with(&p, &f);

		assert_non_null(site_at(s, function(0)));
		assert_int_equal(strstr(s->problem, "one function for several") != NULL,
				 cases[i].told);
		alloc_sites_free(s);
		alloc_process_close(&p);
	}
	dlclose(provider);
}

static void too_many_functions_are_told(void **state)
{
	struct pf_rdma_functions f = {.n = PF_RDMA_FUNCTIONS_MAX + 1};
	struct alloc_process p;
	struct alloc_sites *s;

	(void)state;
	load("");
	s = find_with(&p, &f);
	assert_non_null(strstr(s->problem, "more than 96 functions"));
	unload(&p, s);
}

/*
 * The library writes to its queues without libibverbs, as UCX does. It is not linked with the
 * provider, which programs may load later.
 */
static void check_direct(const char *import)
{
	_cleanup_free_ char *source = xasprintf("int %s(void *, long);\n"
						"int post(void *q) { return %s(q, 1); }\n",
						import, import),
			    *name = xasprintf("libposts_by_%s.so", import),
			    *path = file_in_dir(name),
			    *command = xasprintf("gcc -s -shared -fPIC -o %s -xc -", path),
			    *want = xasprintf("%s can post by direct verbs: podflame does not see "
					      "requests that do not go through libibverbs",
					      name);
	struct pf_rdma_functions f = {.n = 1};
	struct alloc_process p;
	struct alloc_sites *s;
	FILE *gcc = popen(command, "w");
	void *library;

	assert_true(fputs(source, gcc) >= 0);
	assert_int_equal(pclose(gcc), 0);
	load("");
	library = dlopen(path, RTLD_LAZY);
	assert_non_null(library);
	s = find_with(&p, &f);
	assert_string_equal(s->problem, want);
	dlclose(library);
	unload(&p, s);
}

static void files_that_post_by_themselves_are_told(void **state)
{
	(void)state;
	check_direct("mlx5dv_init_obj");
	check_direct("mlx5dv_devx_obj_create");
	check_direct("mlx4dv_init_obj");
	check_direct("manadv_init_obj");
	check_direct("efadv_query_qp_wqs");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_process_without_it_has_nothing),
		cmocka_unit_test(the_real_library_is_found),
		cmocka_unit_test(functions_without_symbols_are_probed),
		cmocka_unit_test(addresses_without_a_function_are_refused),
		cmocka_unit_test(the_middle_of_a_function_is_refused),
		cmocka_unit_test(a_function_for_several_requests_is_told),
		cmocka_unit_test(too_many_functions_are_told),
		cmocka_unit_test(files_that_post_by_themselves_are_told),
	};

	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
