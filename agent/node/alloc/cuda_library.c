/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work of GPUs: finds the library in a CUDA program that reports the program's work by USDT probes.
 * This is libpodflame-cuda.so (provider podflame_cuda) or the library of parcagpu. The driver loads
 * it because it exports InitializeInjection, whatever its name is. If there are both, only
 * libpodflame-cuda.so is probed, because both report the same work. Reader's thread. docs/gpu.md.
 */
#include "node/alloc/cuda_entries.h"
#include "node/alloc/internal.h"

#define ENTRY	      "InitializeInjection"
#define PROBES_MAX    3 /* probes of one library */
#define ARGUMENTS_MAX 3 /* arguments of one probe that are read */

struct library_probe {
	const char *mark; /* "%provider:probe " */
	uint8_t kind;	  /* enum pf_on_gpu_site_kind */
	/* the only text of arguments that is accepted; NULL: any registers with the sizes below */
	const char *arguments;
	uint8_t bytes[ARGUMENTS_MAX]; /* if arguments is NULL, the least size of each; 0: no more */
};
struct library {
	const char *provider; /* "%provider:" */
	const char *file;     /* how its usual name begins */
	struct library_probe probes[PROBES_MAX];
	const char *problem; /* a sentence for the user; NULL: all its work is seen */
};
enum { OWN, PARCAGPU, _LIBRARIES };
static const struct library libraries[_LIBRARIES] = {
	/* the registers of a C call: cuda/usdt.h */
	[OWN] = {.provider = "%podflame_cuda:",
		 .file = "libpodflame-cuda",
		 .probes = {{"%podflame_cuda:launch ", PF_SITE_ON_GPU_LAUNCH,
			     "4@%edi 4@%esi 4@%edx 8@%rcx 8@%r8 4@%r9d"},
			    {"%podflame_cuda:work ", PF_SITE_ON_GPU_WORK, "8@%rdi 4@%esi 4@%edx"},
			    {"%podflame_cuda:status ", PF_SITE_ON_GPU_STATUS, "8@%rdi 4@%esi"}}},
	[PARCAGPU] = {.provider = "%parcagpu:",
		      .file = "libparcagpu",
		      .probes = {{"%parcagpu:cuda_correlation ", PF_SITE_ON_GPU_CORRELATION,
				  .bytes = {4, 4, 8}},
				 {"%parcagpu:activity_batch ", PF_SITE_ON_GPU_BATCH,
				  .bytes = {8, 4}}},
		      .problem = "parcagpu reports at most 100 launches of a thread in a second, "
				 "and neither copies nor how many launches it left out: on-gpu "
				 "lacks that work"},
};
static const char *const marks[] = {ENTRY, "%podflame_cuda:*", "%parcagpu:cuda_correlation *",
				    "%parcagpu:activity_batch *", NULL};

/* ---- arguments ---- */

/*
 * Returns the number of a register, counted as in PF_SITE_INSIDE, by its 8-byte or 4-byte name. 0:
 * there is no such register, or it is the stack pointer.
 */
static uint8_t register_of(const char *name, size_t n)
{
	static const char *const names[][2] = {
		{"rax", "eax"},	 {"rcx", "ecx"},  {"rdx", "edx"},  {"rbx", "ebx"},
		{"", ""},	 {"rbp", "ebp"},  {"rsi", "esi"},  {"rdi", "edi"},
		{"r8", "r8d"},	 {"r9", "r9d"},	  {"r10", "r10d"}, {"r11", "r11d"},
		{"r12", "r12d"}, {"r13", "r13d"}, {"r14", "r14d"}, {"r15", "r15d"},
	};

	for (uint8_t i = 0; i < ARRAY_SIZE(names); i++)
		for (size_t k = 0; k < 2; k++)
			if (n && strlen(names[i][k]) == n && !memcmp(names[i][k], name, n))
				return 1 + i;
	return 0;
}

/*
 * Takes the next argument, such as "-4@%esi " (signed, 4 bytes), and returns its register. 0: it
 * has fewer bytes, or is not in a register.
 */
static uint8_t take_argument(const char **text, uint8_t bytes)
{
	const char *at = *text + (**text == '-');
	size_t n = strcspn(at, " ");

	*text = at + n + (at[n] == ' ');
	if (n < 4 || at[0] < '0' + bytes || at[0] > '8' || at[1] != '@' || at[2] != '%')
		return 0;
	return register_of(at + 3, n - 3);
}

/* Makes a site of a probe's arguments. false: podflame cannot read them. */
static bool read_arguments(const struct library_probe *p, const char *text, struct pf_site *ret)
{
	uint8_t registers[ARGUMENTS_MAX] = {0};

	for (size_t i = 0; i < ARGUMENTS_MAX && p->bytes[i]; i++) {
		registers[i] = take_argument(&text, p->bytes[i]);
		if (!registers[i])
			return false;
	}
	*ret = (struct pf_site){.kind = p->kind,
				.size_arg = registers[0],
				.count_arg = registers[1],
				.ptr_arg = registers[2]};
	return p->arguments ? streq(text, p->arguments) : !*text;
}

/* ---- libraries ---- */

static bool has_probes(const struct elf_index *index, const struct library *l)
{
	for (size_t i = 0; i < elf_index_n_marks(index); i++)
		if (str_has_prefix(elf_index_mark(index, i).name, l->provider))
			return true;
	return false;
}

static int add_place(const struct runtime_look *look, size_t mapping, const struct library_probe *p,
		     const struct elf_mark *mark, struct alloc_sites *ret)
{
	_cleanup_free_ char *shown = xstrndup(p->mark + 1, strlen(p->mark) - 2);
	struct pf_site site;
	uint64_t address;

	if (!mark->size || !read_arguments(p, mark->name + strlen(p->mark), &site) ||
	    !alloc_mark_address(look, mapping, mark, &address))
		return -ENOENT;
	return alloc_add_usdt_site(look, address, mark->size, shown, site, ret);
}

/*
 * Adds a site for each place of a probe: a compiler may have copied the function that has it.
 * -ENOENT: the file has no such place, or one that podflame cannot use: its arguments are unknown,
 * it is not in the file's code, or it has no semaphore and so would never be hit.
 */
static int add_probe(const struct runtime_look *look, size_t mapping, const struct library_probe *p,
		     struct alloc_sites *ret)
{
	const struct elf_index *index = look->indexes[mapping];
	int r = -ENOENT;

	for (size_t i = 0; i < elf_index_n_marks(index); i++) {
		struct elf_mark mark = elf_index_mark(index, i);

		if (!str_has_prefix(mark.name, p->mark))
			continue;
		r = add_place(look, mapping, p, &mark, ret);
		if (r)
			return r;
	}
	return r;
}

/*
 * Adds the sites of all probes of a library. If podflame cannot use one of its probes, adds a
 * problem and no site.
 */
static int add_library(const struct runtime_look *look, size_t mapping, const struct library *l,
		       struct alloc_sites *ret)
{
	size_t before = ret->n;
	int r = 0;

	for (size_t k = 0; r == 0 && k < PROBES_MAX && l->probes[k].mark; k++)
		r = add_probe(look, mapping, &l->probes[k], ret);
	if (r == 0) {
		if (l->problem)
			alloc_add_problem(ret, "%s", l->problem);
		return 0;
	}
	ret->n = before;
	if (r != -ENOENT)
		return r;
	alloc_add_file_problem(ret, &look->maps->items[mapping],
			       "has USDT probes that podflame cannot read: another version of it "
			       "may be needed");
	return 0;
}

/* Adds the libraries of one kind. */
static int add_libraries(const struct runtime_look *look, const struct library *l,
			 struct alloc_sites *ret)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < look->maps->n; i++)
		if (alloc_is_first(look, i) && has_probes(look->indexes[i], l))
			r = add_library(look, i, l, ret);
	return r;
}

/* ---- what is missing ---- */

static bool is_known(const struct elf_index *index)
{
	return has_probes(index, &libraries[OWN]) || has_probes(index, &libraries[PARCAGPU]);
}

static bool has_library_name(const struct mapping *m)
{
	return str_has_prefix(alloc_file_name(m), libraries[OWN].file) ||
	       str_has_prefix(alloc_file_name(m), libraries[PARCAGPU].file);
}

/*
 * Adds a problem for each file that looks like a library for profilers of CUDA, but cannot be read
 * or has no probes that podflame knows.
 */
static void tell_unknown(const struct runtime_look *look, struct alloc_sites *ret)
{
	for (size_t i = 0; i < look->maps->n; i++) {
		const struct mapping *m = &look->maps->items[i];

		if (!look->indexes[i] && has_library_name(m))
			alloc_add_file_problem(ret, m, ALLOC_UNREAD);
		if (alloc_is_first(look, i) && !is_known(look->indexes[i]) &&
		    (alloc_file_defines(look, i, ENTRY) || has_library_name(m)))
			alloc_add_file_problem(ret, m,
					       "was loaded for a profiler of CUDA, and has no "
					       "probes that podflame knows");
	}
}

/* Adds the problem that the process has a driver, but no library. */
static void tell_missing(const struct runtime_look *look, struct alloc_sites *ret)
{
	for (size_t i = 0; i < look->maps->n; i++) {
		const struct mapping *m = &look->maps->items[i];

		if (!look->indexes[i] && alloc_cuda_has_name(m))
			alloc_add_file_problem(ret, m, ALLOC_UNREAD);
		if (look->indexes[i] && (alloc_cuda_has_name(m) || alloc_cuda_is_driver(look, i)))
			alloc_add_problem(ret,
					  "no library reports the work of its GPUs: "
					  "CUDA_INJECTION64_PATH must name libpodflame-cuda.so "
					  "before the program starts");
	}
}

static int find(const struct runtime_look *look, unsigned event_mask, struct alloc_sites *ret)
{
	int r = 0;

	(void)event_mask;
	for (size_t k = 0; r == 0 && !ret->n && k < _LIBRARIES; k++)
		r = add_libraries(look, &libraries[k], ret);
	if (r == 0 && !ret->n)
		tell_unknown(look, ret);
	if (r == 0 && !ret->n && !*ret->problem)
		tell_missing(look, ret);
	return r;
}

const struct alloc_finder alloc_cuda_library_finder = {
	.name = "cuda_library",
	.events = 1u << PF_EVENT_ON_GPU,
	.marks = marks,
	.find = find,
};
