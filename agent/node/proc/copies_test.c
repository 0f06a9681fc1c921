/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that was copied into memory without a file, in each form that programs use. The test maps a
 * second image of libm as a loader does, and then replaces the mapping of its code.
 */
#include "node/proc/maps.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGE   4096u
#define ROOM   (16u << 20) /* addresses reserved for an image */
#define COPIES "podflame_code_copies_refused_total"

/* ---- an image ---- */

struct image {
	uint8_t *base;
	size_t bytes; /* size of the whole image in memory */
	size_t text, text_bytes, text_offset;
	/* address of the last segment; its offset in the file is not the same number */
	size_t data;
	char path[256];
};

/*
 * Maps libm at `at`, as a loader does. of: another file with the same bytes; -1: libm's own file.
 */
static struct image map_image_of(void *at, int of)
{
	struct image i = {.base = at};
	Elf64_Phdr headers[32];
	Elf64_Ehdr e;
	void *handle = dlopen("libm.so.6", RTLD_NOW);
	Dl_info info;
	int fd;

	assert_non_null(handle);
	assert_true(dladdr(dlsym(handle, "sin"), &info));
	assert_non_null(realpath(info.dli_fname, i.path));
	fd = open(i.path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &e, sizeof(e), 0), sizeof(e));
	assert_true(e.e_phnum <= ARRAY_SIZE(headers));
	assert_int_equal(pread(fd, headers, e.e_phnum * sizeof(headers[0]), e.e_phoff),
			 e.e_phnum * sizeof(headers[0]));
	for (size_t k = 0; k < e.e_phnum; k++) {
		const Elf64_Phdr *h = &headers[k];
		size_t in_page = h->p_vaddr % PAGE;
		size_t n = (h->p_filesz + in_page + PAGE - 1) / PAGE * PAGE;
		int protection = PROT_READ | (h->p_flags & PF_X ? PROT_EXEC : 0) |
				 (h->p_flags & PF_W ? PROT_WRITE : 0);

		if (h->p_type != PT_LOAD)
			continue;
		assert_ptr_not_equal(mmap(i.base + h->p_vaddr - in_page, n, protection,
					  MAP_PRIVATE | MAP_FIXED, of < 0 ? fd : of,
					  (off_t)(h->p_offset - in_page)),
				     MAP_FAILED);
		i.data = h->p_vaddr - in_page;
		i.bytes = i.data + n;
		if (!(h->p_flags & PF_X))
			continue;
		i.text = h->p_vaddr;
		i.text_bytes = n;
		i.text_offset = h->p_offset;
	}
	close(fd);
	dlclose(handle);
	assert_int_equal(i.text % PAGE, 0);
	assert_true(i.text_bytes > 64 * PAGE);
	return i;
}

static struct image map_image(void *at)
{
	return map_image_of(at, -1);
}

/* Reserves addresses, so that no other mapping is adjacent to the image. */
static uint8_t *reserve(void)
{
	void *p = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static struct image image(void)
{
	return map_image(reserve() + (1u << 20));
}

static void release(const struct image *i)
{
	munmap(i->base - (1u << 20), ROOM);
}

/*
 * Replaces n bytes of code at `to` by a new mapping with the same contents. fd -1: anonymous, with
 * these flags.
 */
static void copy_over(uint8_t *to, size_t n, int flags, int fd)
{
	_cleanup_free_ uint8_t *bytes = xmemdup(to, n);
	void *p = mmap(to, n, PROT_READ | PROT_WRITE, MAP_FIXED | flags, fd, 0);

	assert_ptr_equal(p, to);
	memcpy(to, bytes, n);
	assert_int_equal(mprotect(to, n, PROT_READ | PROT_EXEC), 0);
}

/* ---- what proc_mappings_read() reports of it ---- */

static struct mappings *read_own(void)
{
	struct mappings *m;
	uint64_t start;

	assert_int_equal(proc_start_boottime((uint32_t)getpid(), &start), 0);
	assert_int_equal(proc_mappings_read((struct process_id){start, getpid()}, 1, &m), 0);
	return m;
}

static const struct mapping *at(const struct mappings *m, const uint8_t *address)
{
	return proc_mappings_find(m, (uintptr_t)address);
}

static void assert_copy(const struct mappings *m, const struct image *i, size_t from, size_t n)
{
	const uint8_t *start = i->base + i->text + from;
	const struct mapping *x = at(m, start);
	struct stat st;

	assert_non_null(x);
	assert_true(x->copy);
	assert_true(mapping_is_unsure(x));
	assert_true(m->unsure);
	assert_string_equal(x->path, i->path);
	assert_int_equal(x->start, (uintptr_t)start);
	assert_int_equal(x->end, (uintptr_t)start + n);
	assert_int_equal(x->file_offset, i->text_offset + from);
	assert_true(x->fd >= 0);
	assert_int_equal(x->open_error, 0);
	assert_int_equal(stat(i->path, &st), 0);
	assert_int_equal(x->inode, st.st_ino);
	assert_int_equal(x->file_bytes, st.st_size);
}

/* Asserts what the kernel has mapped at this address. fd -1: no file. */
static void assert_backing(const struct mappings *m, const uint8_t *start, int fd, uint64_t offset)
{
	const struct mapping *x = at(m, start);
	struct stat ours, theirs;

	if (fd < 0) {
		assert_int_equal(x->backing_fd, -1);
		return;
	}
	assert_int_equal(fstat(fd, &ours), 0);
	assert_int_equal(fstat(x->backing_fd, &theirs), 0);
	assert_int_equal(theirs.st_ino, ours.st_ino);
	assert_int_equal(x->backing_offset, offset);
}

static void assert_no_copy(const struct mappings *m, const uint8_t *address)
{
	const struct mapping *x = at(m, address);

	assert_non_null(x);
	assert_false(x->copy);
	assert_true(x->path[0] != '/' || x->memory_file || x->deleted);
}

/* ---- forms of copies ---- */

static void nothing_is_copied(void **state)
{
	struct image i = image();
	struct mappings *m = read_own();
	const struct mapping *x = at(m, i.base + i.text);

	(void)state;
	assert_string_equal(x->path, i.path);
	assert_false(mapping_is_unsure(x));
	assert_false(m->unsure);
	for (size_t k = 0; k < m->n; k++)
		if (streq(m->items[k].path, "[vdso]"))
			assert_false(mapping_is_unsure(&m->items[k]));
	proc_mappings_unref(m);
	release(&i);
}

static void text_in_anonymous_memory(void **state)
{
	struct image i = image();
	struct mappings *m;

	(void)state;
	copy_over(i.base + i.text, i.text_bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	m = read_own();
	assert_copy(m, &i, 0, i.text_bytes);
	assert_backing(m, i.base + i.text, -1, 0);
	proc_mappings_unref(m);
	release(&i);
}

/* Memory with a name needs Linux 5.17 with CONFIG_ANON_VMA_NAME. */
static void text_in_named_anonymous_memory(void **state)
{
	struct image i = image();
	struct mappings *m;

	(void)state;
	copy_over(i.base + i.text, i.text_bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	if (prctl(0x53564d41, 0, i.base + i.text, i.text_bytes, "hot text"))
		print_message("skipped: this kernel gives anonymous memory no names\n");
	m = read_own();
	assert_copy(m, &i, 0, i.text_bytes);
	proc_mappings_unref(m);
	release(&i);
}

static void text_in_shared_memory(void **state)
{
	struct image i = image();
	struct mappings *m;

	(void)state;
	copy_over(i.base + i.text, i.text_bytes, MAP_SHARED | MAP_ANONYMOUS, -1);
	m = read_own();
	assert_copy(m, &i, 0, i.text_bytes);
	proc_mappings_unref(m);
	release(&i);
}

static void text_in_a_memory_file(void **state)
{
	int fd = memfd_create("text", MFD_CLOEXEC);
	struct image i = image();
	struct mappings *m;

	(void)state;
	assert_int_equal(ftruncate(fd, (off_t)i.text_bytes), 0);
	copy_over(i.base + i.text, i.text_bytes, MAP_SHARED, fd);
	m = read_own();
	assert_copy(m, &i, 0, i.text_bytes);
	assert_backing(m, i.base + i.text, fd, 0);
	proc_mappings_unref(m);
	close(fd);
	release(&i);
}

/* The huge page begins before the file's first mapping, and ends where the code ends. */
static void text_on_huge_pages(void **state)
{
	const int protection = PROT_READ | PROT_WRITE | PROT_EXEC;
	const size_t huge = 2u << 20;
	void *first =
		mmap(NULL, huge, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	struct image probe, i;
	uint8_t *room, *page;
	struct mappings *m;
	size_t end;

	(void)state;
	if (first == MAP_FAILED) {
		print_message("skipped: there are no huge pages here (vm.nr_hugepages)\n");
		skip();
	}
	probe = image();
	end = probe.text + probe.text_bytes;
	assert_true(end <= huge);
	room = reserve();
	page = (uint8_t *)(((uintptr_t)room + huge - 1) / huge * huge) + huge;
	i = map_image(page + huge - end);
	assert_ptr_equal(mremap(first, huge, huge, MREMAP_MAYMOVE | MREMAP_FIXED, page), page);
	memcpy(i.base, probe.base, end);
	release(&probe);
	m = read_own();
	assert_copy(m, &i, 0, i.text_bytes);
	assert_no_copy(m, page);
	proc_mappings_unref(m);
	munmap(page, huge);
	munmap(room, ROOM);
}

static void the_middle_of_text(void **state)
{
	struct image i = image();
	struct mappings *m;
	size_t from = 16 * PAGE, n = 32 * PAGE;

	(void)state;
	copy_over(i.base + i.text + from, n, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	m = read_own();
	assert_copy(m, &i, from, n);
	assert_false(at(m, i.base + i.text)->copy);
	assert_false(at(m, i.base + i.text + from + n)->copy);
	proc_mappings_unref(m);
	release(&i);
}

/* iodlr moves the mapping of the code to other addresses for a moment. */
static void text_that_was_moved_away(void **state)
{
	struct image i = image();
	uint8_t *text = i.base + i.text;
	uint8_t *away = mmap(NULL, i.text_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct mappings *m;

	(void)state;
	assert_ptr_equal(
		mremap(text, i.text_bytes, i.text_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, away),
		away);
	assert_ptr_equal(mmap(text, i.text_bytes, PROT_READ | PROT_WRITE,
			      MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
			 text);
	memcpy(text, away, i.text_bytes);
	mprotect(text, i.text_bytes, PROT_READ | PROT_EXEC);
	m = read_own();
	assert_copy(m, &i, 0, i.text_bytes);
	assert_false(at(m, away)->copy);
	assert_string_equal(at(m, away)->path, i.path);
	proc_mappings_unref(m);
	munmap(away, i.text_bytes);
	release(&i);
}

/*
 * One anonymous mapping has the copy of the code, and before it other memory. Of the file, only the
 * mappings behind the code are left.
 */
static void memory_that_is_more_than_the_text(void **state)
{
	struct image i = image();
	_cleanup_free_ uint8_t *text = xmemdup(i.base + i.text, i.text_bytes);
	struct mappings *m;

	(void)state;
	assert_ptr_equal(mmap(i.base, i.text + i.text_bytes, PROT_READ | PROT_WRITE,
			      MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
			 i.base);
	memcpy(i.base + i.text, text, i.text_bytes);
	mprotect(i.base, i.text + i.text_bytes, PROT_READ | PROT_EXEC);
	m = read_own();
	assert_copy(m, &i, 0, i.text_bytes);
	assert_no_copy(m, i.base);
	assert_int_equal(at(m, i.base)->end, (uintptr_t)i.base + i.text);
	proc_mappings_unref(m);
	release(&i);
}

/* The mappings behind the code are removed. Only those before it are left. */
static void only_what_lies_before_is_left(void **state)
{
	struct image i = image();
	struct mappings *m;

	(void)state;
	copy_over(i.base + i.text, i.text_bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	munmap(i.base + i.text + i.text_bytes, i.bytes - i.text - i.text_bytes);
	m = read_own();
	assert_copy(m, &i, 0, i.text_bytes);
	proc_mappings_unref(m);
	release(&i);
}

static void only_data_is_left(void **state)
{
	struct image i = image();
	struct mappings *m;

	(void)state;
	copy_over(i.base + i.text, i.text_bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	munmap(i.base, i.text);
	munmap(i.base + i.text + i.text_bytes, i.data - i.text - i.text_bytes);
	m = read_own();
	assert_copy(m, &i, 0, i.text_bytes);
	proc_mappings_unref(m);
	release(&i);
}

static void two_libraries_side_by_side(void **state)
{
	uint8_t *room = reserve();
	struct image a = map_image(room), b = map_image(room + a.bytes);
	struct mappings *m;

	(void)state;
	copy_over(a.base + a.text, a.text_bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	copy_over(b.base + b.text, b.text_bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	m = read_own();
	assert_copy(m, &a, 0, a.text_bytes);
	assert_copy(m, &b, 0, b.text_bytes);
	proc_mappings_unref(m);
	munmap(room, ROOM);
}

/*
 * Some pages were overwritten after the copy. The mapping still counts as a copy, because some
 * pages are equal; stack/code_compare.c finds the others when samples are in them.
 */
static void a_copy_with_other_code_in_it(void **state)
{
	struct image i = image();
	struct mappings *m;

	(void)state;
	copy_over(i.base + i.text, i.text_bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	mprotect(i.base + i.text, i.text_bytes, PROT_READ | PROT_WRITE | PROT_EXEC);
	memset(i.base + i.text + PAGE, 0x90, 3 * PAGE);
	m = read_own();
	assert_copy(m, &i, 0, i.text_bytes);
	assert_true(at(m, i.base + i.text)->writable);
	proc_mappings_unref(m);
	release(&i);
}

/* ---- code that is no copy ---- */

/*
 * A library that is mapped from a file in memory was never copied. Its code belongs to that file,
 * in which the kernel can set probes.
 */
static void a_file_in_memory_is_no_copy_of_itself(void **state)
{
	int fd = memfd_create("library", MFD_CLOEXEC);
	struct image disk = image(), i;
	_cleanup_free_ char *bytes = NULL;
	struct mappings *m;
	size_t n;

	(void)state;
	assert_int_equal(file_read(AT_FDCWD, disk.path, 16 << 20, &bytes, &n), 0);
	assert_int_equal(write(fd, bytes, n), n);
	i = map_image_of(reserve() + (1u << 20), fd);
	m = read_own();
	assert_no_copy(m, i.base + i.text);
	assert_true(at(m, i.base + i.text)->memory_file);
	assert_int_equal(at(m, i.base + i.text)->file_offset, i.text_offset);
	proc_mappings_unref(m);
	close(fd);
	release(&i);
	release(&disk);
}

static void generated_code_in_the_place_of_text(void **state)
{
	struct image i = image();
	uint8_t *text = i.base + i.text;
	struct mappings *m;

	(void)state;
	assert_ptr_equal(mmap(text, i.text_bytes, PROT_READ | PROT_WRITE | PROT_EXEC,
			      MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
			 text);
	m = read_own(); /* the memory still has only zeros */
	assert_no_copy(m, text);
	proc_mappings_unref(m);
	for (size_t k = 0; k < i.text_bytes; k++)
		text[k] = (uint8_t)(k * 2654435761u >> 13);
	m = read_own();
	assert_no_copy(m, text);
	proc_mappings_unref(m);
	release(&i);
}

static void generated_code_beside_a_file(void **state)
{
	struct image i = image();
	uint8_t *before = i.base - 4 * PAGE, *behind = i.base + i.bytes;
	struct mappings *m;

	(void)state;
	assert_ptr_equal(mmap(before, 4 * PAGE, PROT_READ | PROT_EXEC,
			      MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
			 before);
	assert_ptr_equal(mmap(behind, 4 * PAGE, PROT_READ | PROT_EXEC,
			      MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
			 behind);
	m = read_own();
	assert_no_copy(m, before);
	assert_no_copy(m, behind);
	proc_mappings_unref(m);
	release(&i);
}

/*
 * The same bytes at other addresses are not the file's code, because its calls lead to other
 * addresses there.
 */
static void text_that_lies_elsewhere(void **state)
{
	struct image i = image();
	uint8_t *behind = i.base + i.bytes + PAGE;
	struct mappings *m;

	(void)state;
	assert_ptr_equal(mmap(behind, i.text_bytes, PROT_READ | PROT_WRITE | PROT_EXEC,
			      MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
			 behind);
	memcpy(behind, i.base + i.text, i.text_bytes);
	m = read_own();
	assert_no_copy(m, behind);
	proc_mappings_unref(m);
	release(&i);
}

static int made_file(const Elf64_Ehdr *e, const Elf64_Phdr *h, size_t n)
{
	char path[] = "/tmp/podflame-copies-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	unlink(path);
	assert_int_equal(ftruncate(fd, 16 * PAGE), 0);
	assert_int_equal(pwrite(fd, e, sizeof(*e), 0), sizeof(*e));
	assert_int_equal(pwrite(fd, h, n * sizeof(*h), sizeof(*e)), n * sizeof(*h));
	return fd;
}

/* If the file's code has only zeros, memory that was never written is no copy of it. */
static void zeros_are_no_code(void **state)
{
	static const Elf64_Ehdr e = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64},
				     .e_phentsize = sizeof(Elf64_Phdr),
				     .e_phoff = sizeof(e),
				     .e_phnum = 2};
	static const Elf64_Phdr h[2] = {{.p_type = PT_LOAD, .p_filesz = PAGE},
					{.p_type = PT_LOAD,
					 .p_offset = PAGE,
					 .p_vaddr = PAGE,
					 .p_filesz = 8 * PAGE,
					 .p_flags = PF_X}};
	int fd = made_file(&e, h, ARRAY_SIZE(h));
	uint8_t *room = reserve();
	struct mappings *m;

	(void)state;
	assert_ptr_equal(mmap(room, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0), room);
	assert_ptr_equal(mmap(room + PAGE, 8 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
			      MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0),
			 room + PAGE);
	m = read_own();
	assert_no_copy(m, room + PAGE);
	proc_mappings_unref(m);
	assert_int_equal(pwrite(fd, "code", 4, PAGE + 100), 4);
	memcpy(room + PAGE + 100, "code", 4);
	m = read_own();
	assert_true(at(m, room + PAGE)->copy);
	proc_mappings_unref(m);
	munmap(room, ROOM);
	close(fd);
}

static void memory_is_known_by_its_name(void **state)
{
	static const struct {
		const char *name;
		bool is_memory;
	} names[] = {
		{"", true},
		{"[anon:hot text]", true},
		{"[anon_shmem:hot text]", true},
		{"/memfd:text (deleted)", true},
		{"/dev/zero (deleted)", true},
		{"/SYSV00000000 (deleted)", true},
		{"/anon_hugepage (deleted)", true},
		{"/memfd:text", false},
		{"/usr/lib/libc.so.6", false},
		{"/usr/lib/libc.so.6 (deleted)", false},
		{"[vdso]", false},
		{"[vsyscall]", false},
		{"[heap]", false},
		{"[stack]", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct maps_line l = {.m = {.fd = -1}, .executable = true, .name = names[i].name};
		struct mapping m = l.m;
		struct copies c = {0};

		proc_maps_take_name(&m, names[i].name);
		proc_copies_line(&c, &l, &m, 0);
		assert_int_equal(c.n, names[i].is_memory);
		free(m.path);
		proc_copies_done(&c);
	}
}

/* A file whose headers have impossible values. */
static void headers_that_make_no_sense(void **state)
{
	Elf64_Ehdr e = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64},
			.e_phentsize = sizeof(Elf64_Phdr),
			.e_phoff = sizeof(e),
			.e_phnum = 4};
	Elf64_Phdr h[4] = {
		{.p_type = PT_LOAD, .p_filesz = PAGE, .p_vaddr = UINT64_MAX - PAGE + 1},
		{.p_type = PT_LOAD, .p_filesz = UINT64_MAX, .p_flags = PF_X},
		{.p_type = PT_LOAD,
		 .p_offset = INT64_MAX / PAGE * PAGE,
		 .p_filesz = INT64_MAX,
		 .p_vaddr = INT64_MAX / PAGE * PAGE,
		 .p_flags = PF_X},
		{.p_type = PT_LOAD, .p_filesz = INT64_MAX, .p_flags = PF_X},
	};
	static const uint64_t offsets[] = {0, 1, INT64_MAX, UINT64_MAX};
	int fd = made_file(&e, h, ARRAY_SIZE(h));
	uint8_t *room = reserve();
	uint64_t refused = counter_get(counter(COPIES, "reason", "headers"));

	(void)state;
	assert_ptr_equal(mmap(room + 8 * PAGE, 8 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0),
			 room + 8 * PAGE);
	assert_ptr_equal(mmap(room, 8 * PAGE, PROT_READ | PROT_EXEC,
			      MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0),
			 room);
	for (size_t k = 0; k < ARRAY_SIZE(offsets); k++) {
		struct mappings *m;

		e.e_phoff = k ? offsets[k] : sizeof(e);
		assert_int_equal(pwrite(fd, &e, sizeof(e), 0), sizeof(e));
		m = read_own();
		assert_no_copy(m, room);
		proc_mappings_unref(m);
	}
	e.e_phnum = 257; /* one more than HEADERS_MAX */
	e.e_phoff = sizeof(e);
	assert_int_equal(pwrite(fd, &e, sizeof(e), 0), sizeof(e));
	proc_mappings_unref(read_own());
	assert_int_equal(counter_get(counter(COPIES, "reason", "headers")), refused + 1);
	munmap(room, ROOM);
	close(fd);
}

static void candidates_beyond_the_limit_are_counted(void **state)
{
	const size_t n = 4200; /* more than CANDIDATES_MAX, 4096 */
	uint8_t *room = mmap(NULL, 4 * ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct image i = map_image(room + 3 * ROOM);
	uint64_t refused = counter_get(counter(COPIES, "reason", "too_many"));
	struct mappings *m;

	(void)state;
	copy_over(i.base + i.text, i.text_bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	/* mappings with gaps between them: otherwise the kernel merges adjacent ones */
	for (size_t k = 0; k < n; k++)
		assert_int_equal(mprotect(room + 2 * k * PAGE, PAGE, PROT_READ | PROT_EXEC), 0);
	m = read_own();
	assert_no_copy(m, i.base + i.text);
	assert_true(counter_get(counter(COPIES, "reason", "too_many")) > refused);
	proc_mappings_unref(m);
	munmap(room, 4 * ROOM);
}

#define N_HEADERS 256 /* as HEADERS_MAX */

/*
 * Maps the first page of a file with N_HEADERS segments. All segments have the code of this page,
 * each at an address `step` bytes after the last. Before the file, up to 1 MiB away, it maps n
 * pieces of executable memory with n_pages pages each. Returns for how many pieces a limit was
 * reached.
 */
static uint64_t n_refused_beside(uint64_t step, size_t n, size_t n_pages)
{
	static const Elf64_Ehdr e = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64},
				     .e_phentsize = sizeof(Elf64_Phdr),
				     .e_phoff = sizeof(e),
				     .e_phnum = N_HEADERS};
	uint64_t before = counter_get(counter(COPIES, "reason", "too_much"));
	uint8_t *room = reserve(), *at = room + (2u << 20);
	Elf64_Phdr h[N_HEADERS];
	int fd;

	for (size_t i = 0; i < N_HEADERS; i++)
		h[i] = (Elf64_Phdr){
			.p_type = PT_LOAD, .p_vaddr = i * step, .p_filesz = PAGE, .p_flags = PF_X};
	fd = made_file(&e, h, N_HEADERS);
	assert_ptr_equal(mmap(at, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0), at);
	at -= n_pages == 1 ? 1u << 20 : 0;
	/* mappings with gaps between them: otherwise the kernel merges adjacent ones */
	for (size_t i = 1; i <= n; i++)
		assert_int_equal(mprotect(at - i * (n_pages + 1) * PAGE, n_pages * PAGE,
					  PROT_READ | PROT_EXEC),
				 0);
	proc_mappings_unref(read_own());
	munmap(room, ROOM);
	close(fd);
	return counter_get(counter(COPIES, "reason", "too_much")) - before;
}

/* TRIES_MAX is 65536, which one piece uses up. */
static void parts_of_files_are_tried_up_to_a_limit(void **state)
{
	(void)state;
	assert_int_equal(n_refused_beside(PAGE, 1, 1), 0);
	assert_int_equal(n_refused_beside(PAGE, 3, 1), 2);
}

/*
 * LOOK_PAGES_MAX is 16384. In the 255 pages before the file, 32640 comparisons of a page with a
 * segment are possible.
 */
static void pages_are_compared_up_to_a_limit(void **state)
{
	(void)state;
	assert_int_equal(n_refused_beside(PAGE, 1, 60), 0);
	assert_int_equal(n_refused_beside(PAGE, 1, 255), 1);
}

static void segments_at_the_same_place_are_tried_once(void **state)
{
	(void)state;
	assert_int_equal(n_refused_beside(0, 100, 1), 0);
}

static size_t open_descriptors(void)
{
	size_t n = 0;

	for (int fd = 0; fd < 4096; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* All descriptors are closed, also those of files that were opened but have no code in memory. */
static void descriptors_are_given_back(void **state)
{
	struct image i = image();
	size_t before = open_descriptors();

	(void)state;
	copy_over(i.base + i.text, i.text_bytes, MAP_SHARED | MAP_ANONYMOUS, -1);
	proc_mappings_unref(read_own());
	assert_int_equal(open_descriptors(), before);
	munmap(i.base + i.text, i.text_bytes / PAGE / 2 * PAGE);
	proc_mappings_unref(read_own());
	assert_int_equal(open_descriptors(), before);
	release(&i);
}

/* ---- files in memory ---- */

static bool is_memory_file(int fd, int flags)
{
	void *p = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, flags, fd, 0);
	struct mappings *m = read_own();
	bool is = at(m, p)->memory_file;

	assert_int_equal(m->unsure, is);
	assert_int_equal(mapping_is_unsure(at(m, p)), is);
	proc_mappings_unref(m);
	munmap(p, PAGE);
	return is;
}

static void files_that_may_be_rewritten(void **state)
{
	_cleanup_close_ int fd = memfd_create("code", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char path[] = "/dev/shm/podflame-copies-XXXXXX";
	_cleanup_close_ int named = mkstemp(path);

	(void)state;
	assert_int_equal(ftruncate(fd, PAGE), 0);
	assert_true(is_memory_file(fd, MAP_PRIVATE));
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	assert_false(is_memory_file(fd, MAP_PRIVATE));
	assert_false(is_memory_file(fd, MAP_SHARED));
	if (named < 0) {
		print_message("skipped: no /dev/shm here\n");
		return;
	}
	assert_int_equal(ftruncate(named, PAGE), 0);
	assert_false(is_memory_file(named, MAP_PRIVATE)); /* mapped privately, as loaders do */
	assert_true(is_memory_file(named, MAP_SHARED));
	unlink(path);
	assert_true(is_memory_file(named, MAP_PRIVATE));
}

/* A file counts as written only if the process has a mapping through which it can write to it. */
static void files_that_the_process_can_write(void **state)
{
	const int shared[] = {MAP_SHARED, MAP_SHARED, MAP_PRIVATE};
	const int protection[] = {PROT_READ | PROT_WRITE, PROT_READ, PROT_READ | PROT_WRITE};
	_cleanup_close_ int fd = memfd_create("code", MFD_CLOEXEC);
	void *code, *data;

	(void)state;
	assert_int_equal(ftruncate(fd, 2 * PAGE), 0);
	code = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	for (size_t i = 0; i < ARRAY_SIZE(shared); i++) {
		struct mappings *m;

		data = mmap(NULL, PAGE, protection[i], shared[i], fd, PAGE);
		m = read_own();
		assert_int_equal(at(m, code)->written, i == 0);
		proc_mappings_unref(m);
		munmap(data, PAGE);
	}
	munmap(code, PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_copied),
		cmocka_unit_test(text_in_anonymous_memory),
		cmocka_unit_test(text_in_named_anonymous_memory),
		cmocka_unit_test(text_in_shared_memory),
		cmocka_unit_test(text_in_a_memory_file),
		cmocka_unit_test(files_that_the_process_can_write),
		cmocka_unit_test(text_on_huge_pages),
		cmocka_unit_test(the_middle_of_text),
		cmocka_unit_test(text_that_was_moved_away),
		cmocka_unit_test(memory_that_is_more_than_the_text),
		cmocka_unit_test(only_what_lies_before_is_left),
		cmocka_unit_test(only_data_is_left),
		cmocka_unit_test(two_libraries_side_by_side),
		cmocka_unit_test(a_copy_with_other_code_in_it),
		cmocka_unit_test(a_file_in_memory_is_no_copy_of_itself),
		cmocka_unit_test(generated_code_in_the_place_of_text),
		cmocka_unit_test(generated_code_beside_a_file),
		cmocka_unit_test(text_that_lies_elsewhere),
		cmocka_unit_test(zeros_are_no_code),
		cmocka_unit_test(memory_is_known_by_its_name),
		cmocka_unit_test(headers_that_make_no_sense),
		cmocka_unit_test(candidates_beyond_the_limit_are_counted),
		cmocka_unit_test(parts_of_files_are_tried_up_to_a_limit),
		cmocka_unit_test(pages_are_compared_up_to_a_limit),
		cmocka_unit_test(segments_at_the_same_place_are_tried_once),
		cmocka_unit_test(descriptors_are_given_back),
		cmocka_unit_test(files_that_may_be_rewritten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
