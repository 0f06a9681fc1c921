/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that a child reads, through the whole module. This program has the runtime, and with VERB
 * it is the child.
 */
#include "node/stack/teststack.h"

#include "node/runtime/testreader.h"

#define VERB "__names"
#define MARK "wanted_test_text"

extern const char wanted_test_text[];
const char wanted_test_text[] = "name";

static const char *const marks[] = {MARK, NULL};

/* The data says where the text is. */
static int learn(const struct runtime_look *look, struct runtime_learnt *old,
		 struct runtime_learnt *ret)
{
	const struct mapping *m;
	uint64_t address, size;
	int r = runtime_find_mark(look, MARK, &m, &address, &size);

	(void)old;
	if (r < 0)
		return r;
	ret->data = xcalloc(1, sizeof(struct pf_python));
	ret->data_bytes = sizeof(struct pf_python);
	ret->state = xmemdup(&address, sizeof(address));
	return 0;
}

static int name(void *state, struct memory *m, const struct runtime_words *frame,
		const struct runtime_words *caller, struct runtime_names *ret)
{
	char *text;
	int r = runtime_memory_string(m, *(const uint64_t *)state, 64, &text);

	(void)frame;
	(void)caller;
	if (r == 0)
		runtime_names_add(ret, text, NULL, 0, false);
	return r;
}

static const struct runtime_ops fake = {.name = "fake",
					.title = "Fake",
					.frame_kind = FRAME_PYTHON,
					.marks = marks,
					.learn = learn,
					.resolve = name,
					.forget = free};
static const struct runtime_ops *const table[_PF_RUNTIME_MAX] = {[PF_RUNTIME_PYTHON] = &fake};

/* Adds the runtime to the process. No child has learnt it yet. */
static void run_fake(struct fixture *f)
{
	const struct runtime_learnt learnt = {.data = xcalloc(1, sizeof(struct pf_python)),
					      .data_bytes = sizeof(struct pf_python)};
	struct runtime_process *r;
	struct mappings *m;

	assert_int_equal(proc_mappings_read(f->id, 1, &m), 0);
	r = runtime_process_with(NULL, m, PF_RUNTIME_PYTHON, &learnt);
	stacks_runtimes(f->s, f->id, 1, r);
	runtime_process_unref(r);
	proc_mappings_unref(m);
}

static int read_wanted(struct fixture *f, const struct raw_stack *u)
{
	struct names_wanted **w;
	size_t n;
	int error;

	stacks_want(f->s, f->id, u);
	w = stacks_wanted(f->s, &n);
	assert_int_equal(n, 1);
	assert_int_equal(w[0]->n_asks, 1);
	stacks_wanted_read(w[0]);
	error = w[0]->asks[0].error;
	stacks_named(f->s, w[0]);
	stacks_wanted_free(w[0]);
	free(w);
	return error;
}

/* The child learns from the files that are parsed by then. */
static void a_child_that_does_not_know_the_process_learns_it(void **state)
{
	struct fixture f = make(kallsyms);
	struct raw_frame frames[] = {
		{.runtime = PF_RUNTIME_PYTHON, .type = 5, .exec_id = 1, .words = {1, 2}}};
	const struct raw_stack u = {.hash = 1, .frames = frames, .n = 1};
	struct mappings *m;

	(void)state;
	run_fake(&f);
	assert_int_equal(read_wanted(&f, &u), -EBUSY);
	assert_int_equal(proc_mappings_read(f.id, 1, &m), 0);
	for (size_t i = 0; i < m->n; i++) {
		struct elf_index *index;

		if (files_index(files, &m->items[i], &index) == 0)
			elf_index_unref(index);
	}
	proc_mappings_unref(m);
	frames[0].words[1]++; /* another name, which is asked for at once */
	assert_int_equal(read_wanted(&f, &u), 0);
	assert_rendered(&f, &u, NULL, false, "name");
	runtime_reader_use(NULL, VERB); /* ends the child */
	frames[0].words[1]++;
	assert_int_equal(read_wanted(&f, &u), 0);
	done(&f);
}

static int begin(void **state)
{
	const struct files_config c = {.parser.marks = marks};

	(void)state;
	runtime_reader_use(NULL, VERB);
	return testdir_make(dir) || files_new(&c, &files);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_child_that_does_not_know_the_process_learns_it),
	};

	runtime_table = table;
	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	if (argc > 1 && streq(argv[1], VERB))
		return testreader_main(VERB, testreader_answer);
	return cmocka_run_group_tests(tests, begin, stop);
}
