/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of the spool: a file for each item, which spool_file.c writes, and a file for the
 * account of losses. The name of an item's file is "SEQUENCE-NS.otlp" or, if the item is of several
 * namespaces, "SEQUENCE.otlp". The sequence continues after a restart, so the names sort by age.
 * Runs only on the worker send_config.disk.
 */
#include "node/send/spool.h"
#include "node/send/spool_file.h"
#include "lib/loop/http.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#define NAME_FORMAT    "%016" PRIx64 ".otlp"
#define NAME_NS_FORMAT "%016" PRIx64 "-%016" PRIx64 ".otlp"
#define NAME_CHARS     38
#define LOSS_NAME      "losses.account"
#define CORRUPT_PREFIX "corrupt-"
#define CORRUPT_MAX    8 /* damaged files that are kept; further ones are deleted */
/* limit of the profiles of containers in the account; there is one for each container and event */
#define OWNERS_MAX 4096 /* further containers count in the node's profiles */

struct spool {
	char *dir;
	bool compress;
	uint64_t next_seq; /* larger than all numbers of an earlier run */
	unsigned n_corrupt;
	/*
	 * the account of losses: one profile per container and event, without samples; NULL:
	 * nothing was lost
	 */
	struct batch *losses;
	bool losses_saved; /* the file of the account contains all of losses */
};

struct spool_item *send_spool_item_free(struct spool_item *i)
{
	if (!i)
		return NULL;
	for (size_t k = 0; k < i->n_events; k++) {
		free((char *)i->events[k].pod_uid);
		free((char *)i->events[k].container_id);
	}
	free(i->events);
	free(i->path);
	buf_done(&i->body);
	free(i);
	return NULL;
}

static void item_freep(struct spool_item **i)
{
	send_spool_item_free(*i);
}

struct spool *send_spool_new(const char *dir, bool compress)
{
	struct spool *s = xcalloc(1, sizeof(*s));

	s->dir = xstrdup(dir ? dir : "");
	s->compress = compress;
	return s;
}

struct spool *send_spool_free(struct spool *s)
{
	if (!s)
		return NULL;
	profile_batch_free(s->losses);
	free(s->dir);
	free(s);
	return NULL;
}

static char *path_of(const struct spool *s, const char *name)
{
	return xasprintf("%s/%s", s->dir, name);
}

/* ---- one file ---- */

static void set_aside(struct spool *s, const char *path)
{
	const char *name = strrchr(path, '/') + 1;
	_cleanup_free_ char *text = xasprintf(CORRUPT_PREFIX "%s", name);
	_cleanup_free_ char *to = path_of(s, text);

	counter_add(counter("podflame_spool_files_total", "reason", "corrupt"), 1);
	if (s->n_corrupt++ >= CORRUPT_MAX || rename(path, to) < 0)
		unlink(path);
}

int send_spool_get(struct spool *s, const struct spool_item *i, struct buf *ret_body)
{
	int r;

	if (!i->path)
		return buf_add(ret_body, i->body.data, i->body.len);
	r = send_spool_file_read(i->path, ret_body);
	if (r == -EMFILE || r == -ENFILE || r == -ENOMEM)
		return -EAGAIN;
	if (r == -EBADMSG)
		set_aside(s, i->path);
	else if (r < 0)
		counter_add(counter("podflame_spool_files_total", "reason", "unreadable"), 1);
	return r;
}

void send_spool_remove(struct spool *s, const struct spool_item *i)
{
	(void)s;
	if (i->path)
		unlink(i->path);
}

/* ---- the directory ---- */

static void make_name(uint64_t seq, uint64_t ns, char ret[static NAME_CHARS + 1])
{
	if (ns == SPOOL_SEVERAL_NS)
		snprintf(ret, NAME_CHARS + 1, NAME_FORMAT, seq);
	else
		snprintf(ret, NAME_CHARS + 1, NAME_NS_FORMAT, seq, ns);
}

static bool parse_name(const char *name, uint64_t *ret_seq, uint64_t *ret_ns)
{
	char back[NAME_CHARS + 1], *end;

	*ret_seq = strtoull(name, &end, 16);
	*ret_ns = *end == '-' ? strtoull(end + 1, NULL, 16) : SPOOL_SEVERAL_NS;
	make_name(*ret_seq, *ret_ns, back);
	return streq(name, back);
}

static int by_seq(const struct spool_item *a, const struct spool_item *b)
{
	return (a->seq > b->seq) - (a->seq < b->seq);
}

static struct spool_item *found_item(const struct spool *s, const char *name, uint64_t seq,
				     uint64_t ns)
{
	_cleanup_free_ char *path = path_of(s, name);
	struct spool_item *i;
	struct stat st;

	if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return NULL;
	i = xcalloc(1, sizeof(*i));
	i->seq = seq;
	i->ns = ns;
	i->path = TAKE_PTR(path);
	i->bytes = (size_t)st.st_size;
	return i;
}

static void unlink_in(const struct spool *s, const char *name)
{
	_cleanup_free_ char *path = path_of(s, name);

	unlink(path);
}

/*
 * Whether the file is one that the agent was writing when it was killed. Files of other programs
 * are left alone.
 */
static bool is_unfinished(const char *name)
{
	_cleanup_free_ char *whole = NULL;
	uint64_t seq, ns;

	if (!str_has_suffix(name, ".tmp"))
		return false;
	whole = xstrndup(name, strlen(name) - strlen(".tmp"));
	return streq(whole, LOSS_NAME) || parse_name(whole, &seq, &ns);
}

static void scan_entry(struct spool *s, const char *name, struct spool_item **items, size_t *n)
{
	struct spool_item *i;
	uint64_t seq, ns;
	bool is_ours = parse_name(name, &seq, &ns);

	/* also for a file that does not become an item, so that no new file replaces it */
	if (is_ours)
		s->next_seq = MAX(s->next_seq, seq + 1);
	if (is_unfinished(name)) {
		unlink_in(s, name);
	} else if (str_has_prefix(name, CORRUPT_PREFIX)) {
		s->n_corrupt++;
	} else if (is_ours && *n == SPOOL_ITEMS_MAX) { /* the file stays for the next start */
		counter_add(counter("podflame_spool_files_total", "reason", "left"), 1);
	} else if (is_ours && (i = found_item(s, name, seq, ns))) {
		DL_APPEND(*items, i);
		(*n)++;
	}
}

/*
 * Makes an item of the account that an earlier run left, without reading it. On a read-only file
 * system the account stays.
 */
static int take_over_account(struct spool *s, struct spool_item **items, size_t *n)
{
	char name[NAME_CHARS + 1];
	_cleanup_free_ char *from = path_of(s, LOSS_NAME), *to = NULL;

	make_name(s->next_seq, SPOOL_SEVERAL_NS, name);
	to = path_of(s, name);
	if (rename(from, to) < 0)
		return errno == ENOENT || errno == EROFS ? 0 : -errno;
	scan_entry(s, name, items, n);
	return 0;
}

/*
 * Uses no directory from now on. If the directory cannot be listed, new files might replace those
 * of an earlier run.
 */
static int use_memory(struct spool *s, int why)
{
	counter_add(counter("podflame_spool_files_total", "reason", "scan_failed"), 1);
	s->dir[0] = '\0';
	return why;
}

int send_spool_scan(struct spool *s, struct spool_item **ret_items)
{
	struct spool_item *items = NULL, *i, *next;
	const struct dirent *e;
	size_t n = 0;
	DIR *d;
	int r;

	*ret_items = NULL;
	if (!*s->dir)
		return 0;
	r = mkdir_parents(s->dir, 0700);
	d = r < 0 ? NULL : opendir(s->dir);
	if (!d)
		return use_memory(s, r < 0 ? r : -errno);
	while (errno = 0, (e = readdir(d)))
		scan_entry(s, e->d_name, &items, &n);
	r = -errno;
	closedir(d);
	if (r == 0)
		r = take_over_account(s, &items, &n);
	if (r < 0) {
		DL_FOREACH_SAFE(items, i, next)
		send_spool_item_free(i);
		return use_memory(s, r);
	}
	DL_SORT(items, by_seq);
	*ret_items = items;
	return 0;
}

/* ---- items ---- */

static uint64_t samples_of(const struct profile *p)
{
	/*
	 * a snapshot of a process without samples counts as one sample: it shows that no memory is
	 * in use
	 */
	uint64_t n = profile_event_info(p->event)->snapshot && p->process_id && !p->n_losses;

	if (p->n_samples)
		n = 0;
	for (size_t i = 0; i < p->n_samples; i++)
		n += p->samples[i].n_samples;
	return n;
}

static struct stored_event *find_event(struct spool_item *i, const char *pod_uid,
				       const char *container_id, enum event event)
{
	for (size_t k = 0; k < i->n_events; k++) {
		struct stored_event *e = &i->events[k];

		if (e->event == event && streq(e->container_id, container_id) &&
		    streq(e->pod_uid, pod_uid))
			return e;
	}
	i->events = xrealloc(i->events, (i->n_events + 1) * sizeof(*i->events));
	i->events[i->n_events] = (struct stored_event){
		.pod_uid = xstrdup(pod_uid), .container_id = xstrdup(container_id), .event = event};
	return &i->events[i->n_events++];
}

/* Notes which events of which containers are in the batch, for send_on_stored(). */
static void note_events(struct spool_item *i, const struct batch *b)
{
	for (size_t k = 0; k < b->n_profiles; k++) {
		const struct profile *p = b->profiles[k];
		const char *pod_uid = profile_tag_get(p, "pod_uid");
		const char *container_id = profile_tag_get(p, "container_id");
		uint64_t n = samples_of(p);

		i->n_profiles++;
		i->n_samples += n;
		if (n && (pod_uid || container_id))
			find_event(i, pod_uid ? pod_uid : "", container_id ? container_id : "",
				   p->event)
				->n_samples += n;
	}
}

static int encode(const struct spool *s, const struct batch *b, struct buf *ret_body)
{
	_cleanup_buf_ struct buf bytes = {0};
	int r;
	_stage_("encode");

	if (!s->compress)
		return otlp_encode(b, ret_body);
	r = otlp_encode(b, &bytes);
	return r < 0 ? r : http_compress(bytes.data, bytes.len, ret_body);
}

/*
 * Renames the account's file to the file of its item, so that a kill leaves one of the two, not
 * both. If both stayed, they would have the same ids. The hub would then ignore losses that were
 * added to the account later.
 */
static int account_to_file(const struct spool *s, const struct spool_item *i, const char *path)
{
	_cleanup_free_ char *from = path_of(s, LOSS_NAME);
	int r = s->losses_saved ? 0 : send_spool_file_write(from, true, &i->body);

	return r < 0 ? r : rename(from, path) < 0 ? -errno : 0;
}

/* Moves body into a file. If that fails, body stays in memory. */
static void to_file(const struct spool *s, struct spool_item *i)
{
	char name[NAME_CHARS + 1];
	_cleanup_free_ char *path = NULL;
	int r;

	if (!*s->dir)
		return;
	make_name(i->seq, i->ns, name);
	path = path_of(s, name);
	r = i->loss_only ? account_to_file(s, i, path)
			 : send_spool_file_write(path, false, &i->body);
	if (r < 0) {
		unlink(path);
		counter_add(counter("podflame_spool_files_total", "reason", "write_failed"), 1);
		return;
	}
	i->path = TAKE_PTR(path);
	i->bytes = i->body.len + SPOOL_HEADER_MAX;
	buf_done(&i->body);
	buf_init(&i->body, 0);
}

static int put(struct spool *s, const struct batch *b, uint64_t ns, bool loss_only,
	       struct spool_item **ret)
{
	_cleanup_(item_freep) struct spool_item *i = xcalloc(1, sizeof(*i));
	int r = encode(s, b, &i->body);

	if (r < 0)
		return r;
	i->seq = s->next_seq++;
	i->ns = ns;
	i->loss_only = loss_only;
	i->bytes = i->body.len;
	if (!loss_only)
		note_events(i, b);
	to_file(s, i);
	*ret = TAKE_PTR(i);
	return 0;
}

int send_spool_put(struct spool *s, const struct batch *b, uint64_t ns, struct spool_item **ret)
{
	return put(s, b, ns, false, ret);
}

/* ---- the account of losses ---- */

bool send_spool_has_losses(const struct spool *s)
{
	return s->losses != NULL;
}

/*
 * Whether event and tags are equal, except the tag of the process. Then both profiles belong to the
 * same container, or to the node.
 */
static bool same_owner(const struct profile *a, const struct profile *b)
{
	size_t i = 0, k = 0;

	if (a->event != b->event)
		return false;
	for (;; i++, k++) {
		i += i < a->tags.n && streq(a->tags.items[i].key, "container_pid");
		k += k < b->tags.n && streq(b->tags.items[k].key, "container_pid");
		if (i >= a->tags.n || k >= b->tags.n)
			return i >= a->tags.n && k >= b->tags.n;
		if (!streq(a->tags.items[i].key, b->tags.items[k].key) ||
		    !streq(a->tags.items[i].value, b->tags.items[k].value))
			return false;
	}
}

static bool tag_of_account(const char *key, bool node_only)
{
	if (node_only)
		return streq(key, "pod_node") || streq(key, "pod_cluster");
	return !streq(key, "container_pid");
}

static struct profile *new_account(struct batch *b, const struct profile *p, bool node_only)
{
	struct profile *a = profile_batch_profile(b);

	random_bytes(a->id, sizeof(a->id));
	a->event = p->event;
	a->start_ns = p->start_ns;
	a->end_ns = p->end_ns;
	a->app_service = profile_batch_str(b, "");
	for (size_t i = 0; i < p->tags.n; i++)
		if (tag_of_account(p->tags.items[i].key, node_only))
			profile_tag(b, a, p->tags.items[i].key, p->tags.items[i].value);
	return a;
}

/*
 * Returns the account's profile for the container and event of p. If the account already has
 * OWNERS_MAX profiles, returns the node's profile for this event.
 */
static struct profile *account_of(struct spool *s, const struct profile *p)
{
	struct batch *b = s->losses ? s->losses : (s->losses = profile_batch_new());

	for (size_t i = 0; i < b->n_profiles; i++)
		if (same_owner(b->profiles[i], p))
			return b->profiles[i];
	for (size_t i = OWNERS_MAX; i < b->n_profiles; i++)
		if (b->profiles[i]->event == p->event)
			return b->profiles[i];
	return new_account(b, p, b->n_profiles >= OWNERS_MAX);
}

static void count_profiles(const char *reason, uint64_t n, struct send_lost *lost)
{
	lost->n_profiles += n;
	counter_add(counter("podflame_profiles_dropped_total", "reason", reason), n);
}

/*
 * Only the file contained the containers and events of these samples. So the loss is one of the
 * node.
 */
void send_spool_count_unreadable(const struct spool_item *i, struct send_lost *lost)
{
	count_profiles("spool_unreadable", MAX(i->n_profiles, (size_t)1), lost);
	lost->n_samples += i->n_samples;
	profile_samples_lost(&lost->losses, 0, "spool_unreadable", i->n_samples);
}

static void account(struct spool *s, const struct profile *p, const char *reason,
		    struct send_lost *lost)
{
	struct profile *a = account_of(s, p);
	uint64_t n = samples_of(p);

	a->start_ns = MIN(a->start_ns, p->start_ns);
	a->end_ns = MAX(a->end_ns, p->end_ns);
	if (n)
		profile_lose(s->losses, a, reason, n, 0);
	for (size_t i = 0; i < p->n_losses; i++)
		profile_lose(s->losses, a, p->losses[i].reason, p->losses[i].n_samples,
			     p->losses[i].time_ns);
	/* an account of losses is not counted as a profile */
	count_profiles(reason, p->n_samples || !p->n_losses, lost);
	lost->n_samples += n;
	/* not added to lost->losses, because the account reports them to the hub */
	counter_add(counter("podflame_samples_dropped_total", "reason", reason), n);
}

/*
 * Saves the account, so that it survives a kill. Its ids do not change, so the hub counts the
 * account once, even if it receives the account twice.
 */
static void save_losses(struct spool *s)
{
	_cleanup_buf_ struct buf bytes = {0}, body = {0};
	_cleanup_free_ char *path = path_of(s, LOSS_NAME);
	bool encoded = *s->dir && s->losses && otlp_encode(s->losses, &bytes) == 0 &&
		       http_compress(bytes.data, bytes.len, &body) == 0;

	s->losses_saved = encoded && send_spool_file_write(path, true, &body) == 0;
	if (encoded && !s->losses_saved)
		counter_add(counter("podflame_spool_files_total", "reason", "write_failed"), 1);
}

void send_spool_lose(struct spool *s, const struct batch *b, const char *reason,
		     struct send_lost *lost)
{
	for (size_t i = 0; i < b->n_profiles; i++)
		account(s, b->profiles[i], reason, lost);
	save_losses(s);
}

void send_spool_drop(struct spool *s, const struct spool_item *i, const char *reason,
		     struct send_lost *lost)
{
	_cleanup_buf_ struct buf body = {0}, bytes = {0};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	int r = send_spool_get(s, i, &body);

	if (r == 0)
		r = http_decompress(s->compress ? "zstd" : "", body.data, body.len, OTLP_MAX_BYTES,
				    &bytes);
	if (r == 0)
		r = otlp_decode(bytes.data, bytes.len, &b, NULL);
	if (r == 0)
		send_spool_lose(s, b, reason, lost);
	else
		send_spool_count_unreadable(i, lost);
	send_spool_remove(s, i);
}

int send_spool_take_losses(struct spool *s, struct spool_item **ret)
{
	_cleanup_free_ char *path = path_of(s, LOSS_NAME);
	int r;

	*ret = NULL;
	if (!s->losses)
		return 0;
	r = put(s, s->losses, SPOOL_SEVERAL_NS, true, ret);
	if (r < 0)
		return r;
	s->losses = profile_batch_free(s->losses);
	/* the item is in memory and is sent from there, so the old file must not be sent, too */
	if (*s->dir && !(*ret)->path)
		unlink(path);
	return 0;
}
