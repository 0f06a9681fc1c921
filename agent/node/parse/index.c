/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of an index. Whoever wrote it read a hostile file and may be hostile by
 * now: seals and every bound are checked once at the start, and sealed bytes stay.
 */
#include "node/parse/format.h"
#include "node/parse/parse.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct elf_index {
	atomic_uint refs;
	void *map;
	size_t bytes;
	const struct index_header *header;
	const struct index_segment *segments;
	const struct index_symbol *symbols;
	const char *strings;
	char build_id[2 * INDEX_BUILD_ID_MAX + 1];
};

struct elf_index *elf_index_ref(struct elf_index *i)
{
	atomic_fetch_add(&i->refs, 1);
	return i;
}

struct elf_index *elf_index_unref(struct elf_index *i)
{
	if (i && atomic_fetch_sub(&i->refs, 1) == 1) {
		munmap(i->map, i->bytes);
		free(i);
	}
	return NULL;
}

size_t elf_index_bytes(const struct elf_index *i)
{
	return i->bytes;
}

const char *elf_index_build_id(const struct elf_index *i)
{
	return i->build_id;
}

bool elf_index_equal(const struct elf_index *a, const struct elf_index *b)
{
	return a->bytes == b->bytes && memcmp(a->map, b->map, a->bytes) == 0;
}

static bool sizes_fit(const struct index_header *h, size_t bytes)
{
	uint64_t want = sizeof(*h);

	if (h->n_symbols > INDEX_SYMBOLS_MAX || h->n_segments > INDEX_SEGMENTS_MAX ||
	    h->string_bytes > INDEX_STRINGS_MAX || h->build_id_bytes > INDEX_BUILD_ID_MAX)
		return false;
	want += (uint64_t)h->n_segments * sizeof(struct index_segment);
	want += (uint64_t)h->n_symbols * sizeof(struct index_symbol);
	want += h->string_bytes;
	return want == bytes;
}

static bool segments_valid(const struct elf_index *i)
{
	for (uint32_t k = 0; k < i->header->n_segments; k++) {
		const struct index_segment *s = &i->segments[k];

		if (s->address + s->bytes < s->address || s->offset + s->bytes < s->offset)
			return false;
	}
	return true;
}

static bool symbols_valid(const struct elf_index *i)
{
	uint64_t end = 0;

	/* With the last byte NUL every offset inside starts a string that ends inside. */
	if (i->header->string_bytes && i->strings[i->header->string_bytes - 1])
		return false;
	for (uint32_t k = 0; k < i->header->n_symbols; k++) {
		const struct index_symbol *s = &i->symbols[k];

		if (s->address < end || s->size == 0 || s->address + s->size < s->address ||
		    s->name >= i->header->string_bytes)
			return false;
		end = s->address + s->size;
	}
	return true;
}

static int map_sealed(int fd, void **ret_map, size_t *ret_bytes)
{
	const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
	struct stat st;
	void *map;
	int have = fcntl(fd, F_GET_SEALS);

	if (have < 0 || (have & seals) != seals)
		return -EBADMSG;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < (off_t)sizeof(struct index_header) || st.st_size > UINT32_MAX)
		return -EBADMSG;
	map = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	*ret_map = map;
	*ret_bytes = st.st_size;
	return 0;
}

int elf_index_open(int memfd, struct elf_index **ret)
{
	_cleanup_close_ int fd = memfd;
	struct elf_index *i;
	size_t bytes = 0;
	void *map = NULL;
	int r = map_sealed(fd, &map, &bytes);

	if (r < 0)
		return r;
	i = xcalloc(1, sizeof(*i));
	atomic_init(&i->refs, 1);
	i->map = map;
	i->bytes = bytes;
	i->header = map;
	if (memcmp(i->header->magic, INDEX_MAGIC, sizeof(i->header->magic)) != 0 ||
	    !sizes_fit(i->header, bytes))
		goto fail;
	i->segments = (const void *)(i->header + 1);
	i->symbols = (const void *)(i->segments + i->header->n_segments);
	i->strings = (const void *)(i->symbols + i->header->n_symbols);
	if (!segments_valid(i) || !symbols_valid(i))
		goto fail;
	hex_encode(i->header->build_id, i->header->build_id_bytes, i->build_id);
	*ret = i;
	return 0;
fail:
	elf_index_unref(i);
	return -EBADMSG;
}

int elf_index_address(const struct elf_index *i, uint64_t file_offset, uint64_t *ret_address)
{
	/* Data segments may repeat a page of the text in the file: text first. */
	for (int executable = 1; executable >= 0; executable--) {
		for (uint32_t k = 0; k < i->header->n_segments; k++) {
			const struct index_segment *s = &i->segments[k];

			if ((s->executable != 0) != executable || file_offset < s->offset ||
			    file_offset - s->offset >= s->bytes)
				continue;
			*ret_address = s->address + (file_offset - s->offset);
			return 0;
		}
	}
	return -ENOENT;
}

int elf_index_symbol(const struct elf_index *i, uint64_t address, struct elf_symbol *ret)
{
	size_t low = 0, high = i->header->n_symbols;
	const struct index_symbol *s;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (i->symbols[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return -ENOENT;
	s = &i->symbols[low - 1];
	if (address - s->address >= s->size)
		return -ENOENT;
	*ret = (struct elf_symbol){s->address, s->size, i->strings + s->name};
	return 0;
}
