/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids of stacks and frames: the first 8 bytes of a SHA-256 over the database's secret seed and what
 * the stack or frame says. Who does not know the seed cannot make two that share an id. That two
 * share one by chance is as likely as 1 in 3 million among 10 million stacks.
 */
#include "hub/store/clickhouse/clickhouse.h"

#include <openssl/evp.h>
#include <stdlib.h>

struct ch_hash {
	const struct ch_store *s;
	EVP_MD_CTX *seeded, *now;
};

static void must(int ok)
{
	if (!ok)
		out_of_memory();
}

static void begin(struct ch_hash *h)
{
	must(EVP_MD_CTX_copy_ex(h->now, h->seeded));
}

struct ch_hash *store_ch_hash_new(const struct ch_store *s)
{
	struct ch_hash *h = xcalloc(1, sizeof(*h));

	h->seeded = EVP_MD_CTX_new();
	h->now = EVP_MD_CTX_new();
	must(h->seeded && h->now && EVP_DigestInit_ex(h->seeded, EVP_sha256(), NULL) &&
	     EVP_DigestUpdate(h->seeded, s->seed, sizeof(s->seed)));
	begin(h);
	return h;
}

struct ch_hash *store_ch_hash_free(struct ch_hash *h)
{
	if (!h)
		return NULL;
	EVP_MD_CTX_free(h->seeded);
	EVP_MD_CTX_free(h->now);
	free(h);
	return NULL;
}

void store_ch_hash_u64(struct ch_hash *h, uint64_t v)
{
	must(EVP_DigestUpdate(h->now, &v, sizeof(v)));
}

void store_ch_hash_ids(struct ch_hash *h, const uint64_t *ids, size_t n)
{
	must(EVP_DigestUpdate(h->now, ids, n * sizeof(*ids)));
}

void store_ch_hash_str(struct ch_hash *h, const char *s)
{
	store_ch_hash_u64(h, s ? strlen(s) + 1 : 0);
	if (s)
		must(EVP_DigestUpdate(h->now, s, strlen(s)));
}

uint64_t store_ch_hash_end(struct ch_hash *h)
{
	uint8_t digest[EVP_MAX_MD_SIZE];
	uint64_t id;

	must(EVP_DigestFinal_ex(h->now, digest, NULL));
	memcpy(&id, digest, sizeof(id));
	begin(h);
	return id ?: 1;
}

/* ---- what a frame and a stack say: as their rows do ---- */

static void hash_if_any(struct ch_hash *h, const char *s)
{
	store_ch_hash_str(h, s && *s ? s : NULL);
}

uint64_t store_ch_frame_id(struct ch_hash *h, const struct frame *f)
{
	store_ch_hash_u64(h, (uint64_t)f->kind << 33 | (uint64_t)f->inlined << 32 |
				     profile_frame_stored_line(f));
	store_ch_hash_u64(h, f->address);
	store_ch_hash_str(h, f->name);
	hash_if_any(h, f->module);
	hash_if_any(h, f->build_id);
	hash_if_any(h, f->file);
	return store_ch_hash_end(h);
}

uint64_t store_ch_stack_id(struct ch_hash *h, uint64_t frames, const struct stack_head *head,
			   const char *const *labels)
{
	bool any = false;

	for (int i = 0; labels && i < _LABEL_MAX; i++)
		any |= labels[i] != NULL;
	store_ch_hash_u64(h, frames);
	store_ch_hash_u64(h, (uint64_t)head->wait << 1 | head->main_thread);
	hash_if_any(h, head->process_comm);
	hash_if_any(h, head->thread_comm);
	for (int i = 0; any && i < _LABEL_MAX; i++)
		store_ch_hash_str(h, labels[i]);
	return store_ch_hash_end(h);
}

/* ---- ids that are in the database ---- */

/* A slot has one id. An id that is not there any more is only written once more. */
#define SEEN_SLOTS (1u << 20)

struct ch_seen {
	struct {
		uint64_t id;
		uint32_t day;
	} slots[SEEN_SLOTS];
};

struct ch_seen *store_ch_seen_new(void)
{
	return xcalloc(1, sizeof(struct ch_seen));
}

struct ch_seen *store_ch_seen_free(struct ch_seen *s)
{
	free(s);
	return NULL;
}

bool store_ch_seen(const struct ch_seen *s, uint64_t id, uint32_t day)
{
	size_t i = id % SEEN_SLOTS;

	return s->slots[i].id == id && s->slots[i].day >= day;
}

void store_ch_see(struct ch_seen *s, uint64_t id, uint32_t day)
{
	size_t i = id % SEEN_SLOTS;

	s->slots[i].id = id;
	s->slots[i].day = day;
}

void store_ch_seen_forget(struct ch_seen *s)
{
	memset(s, 0, sizeof(*s));
}
