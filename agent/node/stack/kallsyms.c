/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads /proc/kallsyms into a sorted table of functions of the kernel, its modules and BPF
 * programs. kallsyms has no sizes, so the agent assumes that a function ends at the next symbol or
 * at a hole.
 */
#include "node/stack/internal.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KALLSYMS_BYTES_MAX   (256u << 20) /* bytes of all names; further functions have none */
#define KALLSYMS_SYMBOLS_MAX (4u << 20)	  /* functions of the kernel; further ones have no name */
#define KALLSYMS_PIECE	     (64u << 10)
/*
 * The last function of a module or BPF program ends somewhere before the next module begins, but
 * kallsyms does not say where. The agent assumes that it has at most this many bytes.
 */
#define LAST_SYMBOL_MAX (64u << 10) /* bytes of a module's last function */

/*
 * The code of a kernel and of its modules is within 2 GiB, so that relative branches reach all of
 * it. On x86-64, these are the last 2 GiB of the addresses (arch/x86/x86_64/mm.rst); on arm64, they
 * are around the kernel's image (arch/arm64/mm/init.c, module_init_limits).
 */
#define CODE_REACH  (2ull << 30)
#define KERNEL_HALF (1ull << 63) /* upper half of the addresses; absolute symbols are below it */

/* A kernel has 1e5 symbols, so each byte here costs every agent a tenth of a megabyte. */
struct kernel_symbol {
	uint32_t offset;		     /* address - kernel_symbols.start */
	uint32_t name;			     /* offset into kernel_symbols.text; so is module */
	uint32_t module : 31, is_public : 1; /* public: "T" */
};
struct kernel_symbols {
	struct buf text; /* names and modules, NUL-terminated; offset 0: "[kernel]" */
	struct kernel_symbol *items;
	uint64_t start; /* 2 GiB below the first symbol; 0: there is no symbol */
	size_t n, cap, seen, shown;
	uint32_t last_module, last_name;
};

struct kernel_symbols *stacks_kernel_symbols_free(struct kernel_symbols *k)
{
	if (k) {
		buf_done(&k->text);
		free(k->items);
		free(k);
	}
	return NULL;
}

bool stacks_kernel_symbols_hidden(const struct kernel_symbols *k)
{
	return k->seen > 0 && k->shown == 0;
}

size_t stacks_kernel_symbols_count(const struct kernel_symbols *k)
{
	return k->n;
}

struct symbol_line {
	uint64_t address;
	char type;
	const char *name, *module;
};

/*
 * Parses "ffffffff81000000 T _stext" or "ffffffffc0201000 t f\t[module]". Puts NULs into the line.
 */
static bool parse_line(char *line, struct symbol_line *ret)
{
	char *p, *name_end;

	errno = 0;
	ret->address = strtoull(line, &p, 16);
	if (errno || p == line || line[0] == '-' || p[0] != ' ' || !p[1] || p[2] != ' ' || !p[3])
		return false;
	ret->type = p[1];
	ret->name = p + 3;
	ret->module = NULL;
	name_end = p + 3 + strcspn(p + 3, " \t");
	if (name_end == ret->name)
		return false;
	if (*name_end) {
		char *open = strchr(name_end + 1, '['), *close = open ? strchr(open, ']') : NULL;

		*name_end = '\0';
		if (close && close > open + 1) {
			*close = '\0';
			ret->module = open + 1;
		}
	}
	return true;
}

/*
 * Returns whether the symbol is at the end of the kernel's code: addresses between it and the next
 * symbol have no name.
 */
static bool is_hole(const char *name)
{
	return streq(name, "_etext") || streq(name, "_einittext") || streq(name, "__init_end");
}

static uint32_t keep(struct kernel_symbols *k, const char *s)
{
	uint32_t at = k->text.len;

	buf_add(&k->text, s, strlen(s) + 1);
	return at;
}

/*
 * Keeps a name, and returns its offset in k->text. Before most functions is padding with a symbol
 * of its own: "__pfx_" and the function's name. Both names share one string.
 */
static uint32_t keep_name(struct kernel_symbols *k, const char *name)
{
	const char *last = k->text.data + k->last_name;
	size_t n = strlen(name), n_last = strlen(last);

	if (n_last > n && streq(last + n_last - n, name))
		return k->last_name + (n_last - n);
	k->last_name = keep(k, name);
	return k->last_name;
}

static uint32_t keep_module(struct kernel_symbols *k, const char *module)
{
	if (!module)
		return 0;
	if (!streq(k->text.data + k->last_module, module))
		k->last_module = keep(k, module);
	return k->last_module;
}

static bool is_in_reach(const struct kernel_symbols *k, uint64_t address)
{
	return address >= k->start && address - k->start < UINT32_MAX;
}

static void add_line(struct kernel_symbols *k, char *line)
{
	struct symbol_line l;

	if (!parse_line(line, &l))
		return;
	k->seen++;
	k->shown += l.address != 0;
	if (l.address < KERNEL_HALF || !strchr("tTwW", l.type))
		return;
	if (!k->start)
		k->start = l.address - CODE_REACH;
	if (!is_in_reach(k, l.address) || k->n == KALLSYMS_SYMBOLS_MAX || k->text.failed)
		return;
	GROW(k->items, k->n, k->cap);
	k->items[k->n++] = (struct kernel_symbol){
		.offset = l.address - k->start,
		.name = keep_name(k, l.name),
		.module = keep_module(k, l.module),
		.is_public = l.type == 'T',
	};
}

static const char *name_of(const struct kernel_symbols *k, const struct kernel_symbol *s)
{
	return k->text.data + s->name;
}

/*
 * Orders the names of one address: those of is_hole() last. Among the rest, public ones come first,
 * then those with fewer underscores, then shorter ones.
 */
static int compare_names(const struct kernel_symbols *k, const struct kernel_symbol *a,
			 const struct kernel_symbol *b)
{
	const char *name_a = name_of(k, a), *name_b = name_of(k, b);
	size_t under_a = strspn(name_a, "_"), under_b = strspn(name_b, "_");
	bool hole_a = is_hole(name_a), hole_b = is_hole(name_b);
	size_t n_a = strlen(name_a), n_b = strlen(name_b);

	if (hole_a != hole_b)
		return hole_b ? -1 : 1;
	if (a->is_public != b->is_public)
		return a->is_public ? -1 : 1;
	if (under_a != under_b)
		return under_a < under_b ? -1 : 1;
	if (n_a != n_b)
		return n_a < n_b ? -1 : 1;
	return strcmp(name_a, name_b);
}

static int compare_symbols(const void *left, const void *right, void *arg)
{
	const struct kernel_symbol *a = left, *b = right;

	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return compare_names(arg, a, b);
}

static bool same_module(const struct kernel_symbols *k, const struct kernel_symbol *a,
			const struct kernel_symbol *b)
{
	return streq(k->text.data + a->module, k->text.data + b->module);
}

static uint64_t size_of(const struct kernel_symbols *k, size_t i)
{
	const struct kernel_symbol *s = &k->items[i];
	bool last = i + 1 == k->n;
	uint64_t size = last ? UINT32_MAX - s->offset : s[1].offset - s->offset;

	if (is_hole(name_of(k, s)))
		return 0;
	return last || !same_module(k, s, &s[1]) ? MIN(size, (uint64_t)LAST_SYMBOL_MAX) : size;
}

static void finish(struct kernel_symbols *k)
{
	size_t n = 0;

	if (k->n)
		qsort_r(k->items, k->n, sizeof(*k->items), compare_symbols, k);
	for (size_t i = 0; i < k->n; i++)
		if (n == 0 || k->items[n - 1].offset != k->items[i].offset)
			k->items[n++] = k->items[i];
	k->n = n;
}

static struct kernel_symbols *new_symbols(void)
{
	struct kernel_symbols *k = xcalloc(1, sizeof(*k));

	buf_init(&k->text, KALLSYMS_BYTES_MAX);
	keep(k, "[kernel]");
	return k;
}

/*
 * Adds the complete lines of the text (the kernel ends every line). Returns how many bytes these
 * lines have.
 */
static size_t add_lines(struct kernel_symbols *k, char *text, size_t n)
{
	char *at = text, *end;

	while ((end = memchr(at, '\n', n - (at - text)))) {
		*end = '\0';
		add_line(k, at);
		at = end + 1;
	}
	return at - text;
}

struct kernel_symbols *stacks_kernel_symbols_parse(char *text, size_t n)
{
	struct kernel_symbols *k = new_symbols();

	add_lines(k, text, n);
	finish(k);
	return k;
}

/* Reads the file in pieces, because it has 10 MB. */
static int read_lines(struct kernel_symbols *k, int fd)
{
	_cleanup_free_ char *piece = xmalloc(KALLSYMS_PIECE);
	size_t have = 0, used;

	for (;;) {
		ssize_t n = read(fd, piece + have, KALLSYMS_PIECE - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		have += n;
		used = add_lines(k, piece, have);
		if (!used && have == KALLSYMS_PIECE)
			return -EBADMSG;
		have -= used;
		memmove(piece, piece + used, have);
	}
}

int stacks_kernel_symbols_read(const char *path, struct kernel_symbols **ret)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct kernel_symbols *k;
	int r;

	if (fd < 0)
		return -errno;
	k = new_symbols();
	r = read_lines(k, fd);
	if (r < 0) {
		stacks_kernel_symbols_free(k);
		return r;
	}
	finish(k);
	*ret = k;
	return 0;
}

int stacks_kernel_symbols_look(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char piece[4096];
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, piece, sizeof(piece) - 1);
	if (n < 0)
		return -errno;
	piece[n] = '\0';
	for (char *line = piece; *line; line += strcspn(line, "\n"), line += *line == '\n')
		if (strtoull(line, NULL, 16))
			return 0;
	return n ? -EADDRNOTAVAIL : -ENODATA;
}

int stacks_kernel_symbols_find(const struct kernel_symbols *k, uint64_t address,
			       uint64_t *ret_start, const char **ret_name, const char **ret_module)
{
	size_t low = 0, high = k->n;
	const struct kernel_symbol *s;
	uint64_t offset = address - k->start;

	if (!is_in_reach(k, address))
		return -ENOENT;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (k->items[middle].offset <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0 || offset - k->items[low - 1].offset >= size_of(k, low - 1))
		return -ENOENT;
	s = &k->items[low - 1];
	*ret_start = k->start + s->offset;
	*ret_name = name_of(k, s);
	*ret_module = k->text.data + s->module;
	return 0;
}

/*
 * Finds the newest BPF program, starting at *id. Ids only grow: each program that is loaded gets a
 * new highest id.
 */
static void find_newest_bpf(uint32_t *id)
{
	union bpf_attr attr = {.start_id = *id};

	while (syscall(SYS_bpf, BPF_PROG_GET_NEXT_ID, &attr, sizeof(attr)) == 0) {
		*id = attr.next_id;
		attr = (union bpf_attr){.start_id = *id};
	}
}

uint64_t stacks_kernel_symbols_fingerprint(const char *path, uint32_t *newest_bpf)
{
	_cleanup_free_ char *modules = NULL;
	struct stat st;
	size_t n;

	if (stat(path, &st) == 0 && st.st_size > 0) /* an ordinary file: a test has made it */
		return hash_bytes(&st.st_mtim, sizeof(st.st_mtim), st.st_size);
	find_newest_bpf(newest_bpf);
	if (file_read(AT_FDCWD, "/proc/modules", 16 << 20, &modules, &n) < 0)
		n = 0;
	return hash_bytes(modules ? modules : "", n, *newest_bpf);
}
