/* SPDX-License-Identifier: Apache-2.0 */
/* Unwind tables from the files of a process, and the text about a file that has none. */
#include "lib/base/testfolder.h"
#include "node/learn/learn.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a kernel that accepts everything, and remembers the last process ---- */

static struct pf_process process;
static struct pf_file slots[PF_FILES_MAX];

static int write_chunk(void *arg, uint32_t chunk, uint32_t offset, const void *bytes, size_t n)
{
	struct pf_mapping *mappings = arg;

	(void)chunk;
	(void)offset;
	if (n % sizeof(*mappings) == 0 && n <= 8 * sizeof(*mappings))
		memcpy(mappings, bytes, n);
	return 0;
}

static int nothing(void *arg)
{
	(void)arg;
	return 0;
}

static int drop(void *arg, uint32_t chunk)
{
	(void)arg;
	(void)chunk;
	return 0;
}

static int set_file(void *arg, uint32_t slot, const struct pf_file *f)
{
	(void)arg;
	slots[slot] = *f;
	return 0;
}

static int set_process(void *arg, const struct pf_process_key *k, const struct pf_process *p)
{
	(void)arg;
	(void)k;
	process = *p;
	return 0;
}

static int remove_process(void *arg, const struct pf_process_key *k)
{
	(void)arg;
	(void)k;
	return 0;
}

static int set_image(void *arg, uint64_t tag, const struct pf_image *i)
{
	(void)arg;
	(void)tag;
	(void)i;
	return 0;
}

static int remove_image(void *arg, uint64_t tag)
{
	(void)arg;
	(void)tag;
	return 0;
}

/* ---- a process ---- */

static struct mapping map_of(uint64_t start, const char *path, char *shown)
{
	struct mapping m = {.start = start, .end = start + 0x1000, .path = shown};
	struct stat st;

	m.fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(fstat(m.fd, &st), 0);
	m.inode = st.st_ino;
	m.ctime_ns = st.st_ctim.tv_sec * NSEC_PER_SEC + st.st_ctim.tv_nsec;
	return m;
}

static char *write_file(const char *name, const void *data, size_t n)
{
	char *path = xasprintf("%s/%s", dir, name);

	assert_int_equal(file_write_atomic(path, data, n, 0755), 0);
	return path;
}

static void parse(struct files *f, const struct mappings *m, const struct applied *a)
{
	struct elf_index *index;

	for (size_t i = 0; i < a->n_unknown; i++)
		if (files_index(f, &m->items[a->unknown[i]], &index) == 0)
			elf_index_unref(index);
}

static void known_at_once_and_missing_told(void **state)
{
	const struct unwind_ops ops = {write_chunk, nothing,	  drop,
				       set_file,    set_process,  remove_process,
				       set_image,   remove_image, nothing};
	_cleanup_free_ char *data = NULL, *broken = NULL, *text = NULL;
	const struct files_config fc = {0};
	struct pf_mapping mappings[8] = {{0}};
	struct mapping items[4];
	struct mappings m = {.id.tgid = 1, .exec_id = 1, .items = items, .n = 4, .refs = 1};
	struct unwind *u;
	struct files *f;
	struct applied a;
	size_t n;

	(void)state;
	assert_int_equal(file_read(AT_FDCWD, "/bin/sh", 8 << 20, &data, &n), 0);
	broken = write_file("broken", data, 200); /* cut off in the program headers */
	text = write_file("text", "no program", 10);
	items[0] = map_of(0x1000, "/bin/sh", (char *)"/bin/sh");
	items[1] = map_of(0x2000, text, (char *)"/srv/text");
	items[2] = map_of(0x3000, broken, (char *)"/srv/bro\nken");
	items[3] = items[2];
	items[3].start = 0x4000;
	items[3].end = 0x5000;
	assert_int_equal(unwind_new(&ops, mappings, 0, &u), 0);
	assert_int_equal(files_new(&fc, &f), 0);

	assert_int_equal(learn_apply(u, f, &m, 0, NULL, &a), 0);
	assert_int_equal(a.n_unknown, 3); /* each file is in the list once */
	assert_null(a.missing);
	assert_int_equal(process.n_parts, 1);
	assert_int_equal(slots[mappings[0].file].state, PF_FILE_PENDING);
	parse(f, &m, &a);
	learn_applied_done(&a);
	assert_int_equal(learn_apply(u, f, &m, 0, NULL, &a), 0);
	assert_int_equal(a.n_unknown, 0);
	assert_int_equal(slots[mappings[0].file].state, PF_FILE_READY);
	assert_int_equal(slots[mappings[1].file].state, PF_FILE_NONE);
	/*
	 * `missing` names the first file that should have tables. /srv/text is no program, so it is
	 * passed over. The name of the broken file comes from the pod: its line break is shown as
	 * '?'.
	 */
	assert_non_null(a.missing);
	assert_non_null(strstr(a.missing, "/srv/bro?ken: "));
	learn_applied_done(&a);
	unwind_free(u);
	files_free(f);
	for (size_t i = 0; i < 3; i++)
		close(items[i].fd);
}

/* ---- tags ---- */

static struct probes *load(void)
{
	const struct probe_config c = {.use_list = true, .max_sample_hz = 99};
	struct field_error err = {0};
	struct probes *p = NULL;
	int r = probes_new(&c, &p, &err);

	if (r == -EPERM || r == -EACCES) {
		print_message("skipped: BPF is not permitted here (%s)\n", err.reason);
		skip();
	}
	assert_int_equal(r, 0);
	return p;
}

/*
 * Mappings of one file get one tag. The CPU time for the tags is added to m.cost_ns. The more this
 * is, the more rarely the mappings of a process are read.
 */
static void mappings_of_one_file_have_one_tag(void **state)
{
	const struct files_config fc = {0};
	struct mapping items[4];
	struct mappings m = {.items = items, .n = 4, .refs = 1};
	struct probes *p = load();
	struct files *f;

	(void)state;
	items[0] = items[2] = map_of(0x1000, "/bin/sh", (char *)"/bin/sh");
	items[1] = items[3] = map_of(0x2000, "/bin/cat", (char *)"/bin/cat");
	items[3].fd = -1;
	assert_int_equal(files_new(&fc, &f), 0);
	learn_tags(f, &m);
	assert_true(items[0].tag >= PF_TAG_FIRST && items[1].tag >= PF_TAG_FIRST);
	assert_int_not_equal(items[0].tag, items[1].tag);
	assert_int_equal(items[2].tag, items[0].tag);
	assert_int_equal(items[3].tag, PF_TAG_UNKNOWN);
	assert_true(files_knows_tag(f, items[0].tag));
	assert_true(m.cost_ns > 0);
	files_free(f);
	probes_free(p);
	close(items[0].fd);
	close(items[1].fd);
}

/*
 * The tag belongs to the new contents of the file, but ctime_ns to the old ones. With this tag,
 * names would come from the wrong bytes.
 */
static void a_file_that_was_rewritten_since_has_no_tag(void **state)
{
	const struct files_config fc = {0};
	struct mapping x = map_of(0x1000, "/bin/sh", (char *)"/bin/sh");
	struct mappings m = {.items = &x, .n = 1, .refs = 1};
	struct probes *p = load();
	struct files *f;

	(void)state;
	x.ctime_ns--;
	assert_int_equal(files_new(&fc, &f), 0);
	learn_tags(f, &m);
	assert_int_equal(x.tag, PF_TAG_UNKNOWN);
	/* ctime does not show a change of such a file, so its bytes are compared */
	x.memory_file = true;
	learn_tags(f, &m);
	assert_true(x.tag >= PF_TAG_FIRST);
	files_free(f);
	probes_free(p);
	close(x.fd);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_at_once_and_missing_told),
		cmocka_unit_test(mappings_of_one_file_have_one_tag),
		cmocka_unit_test(a_file_that_was_rewritten_since_has_no_tag),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
