/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `podflame hub --backup` and `--copy-from`: what a hub keeps on its disk, profiles and uploaded
 * symbols, goes to another place. Each is a process of its own, beside the hub.
 */
#include "hub/data_dir.h"
#include "hub/stores.h"
#include "hub/hub.h"
#include "hub/store/store.h"
#include "hub/symbols/symbols.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TELL_NS (2 * NSEC_PER_SEC)

/* Whether it is time to say how far it is. */
static bool is_time(uint64_t *next_ns)
{
	bool is = now_mono_ns() >= *next_ns;

	if (is)
		*next_ns = now_mono_ns() + TELL_NS;
	return is;
}

/* ---- backup ---- */

static void tell_backup(uint64_t n_done, uint64_t n, void *arg)
{
	if (is_time(arg))
		log_info("%llu of %llu pages copied", (unsigned long long)n_done,
			 (unsigned long long)n);
}

/* Waits until the names in a directory are on the disk. */
static int sync_dir(const char *dir)
{
	_cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int sync_parent(const char *path)
{
	_cleanup_free_ char *parent = xasprintf("%s/..", path);

	return sync_dir(parent);
}

static int fill(const struct config *conf, const char *dir, struct field_error *reterr)
{
	const struct store_config c = {.kind = "sqlite", .path = conf->data_dir};
	_cleanup_free_ char *from = xasprintf("%s/symbols", conf->data_dir),
			    *to = xasprintf("%s/symbols", dir);
	uint64_t next_ns = now_mono_ns() + TELL_NS;
	size_t n_symbols = 0;
	int r = store_backup(&c, dir, tell_backup, &next_ns, reterr);

	if (!r)
		r = symbols_copy(from, to, &n_symbols, reterr);
	if (!r)
		log_info("%zu symbol files copied", n_symbols);
	return r;
}

int hub_backup(const struct config *conf, const char *dir, struct field_error *reterr)
{
	_cleanup_free_ char *part = xasprintf("%s.partial", dir);
	int r;

	if (!streq(conf->store_kind, "sqlite"))
		return field_error_set(reterr, "store.kind",
				       "--backup is for sqlite; %s has its own means",
				       conf->store_kind);
	if (access(dir, F_OK) == 0)
		return field_error_set(reterr, dir, "is there already: name a new directory");
	if (mkdir(part, 0700) < 0)
		return field_error_set(
			reterr, part, "%s%s", strerror(errno),
			errno == EEXIST ? ": delete it if no other backup is under way" : "");
	r = fill(conf, part, reterr);
	if (r)
		return r;
	r = sync_dir(part);
	/* it replaces no directory that has files */
	if (!r && rename(part, dir) < 0)
		r = -errno;
	if (!r)
		r = sync_parent(dir);
	if (r)
		return field_error_set(reterr, dir, "%s", strerror(-r));
	log_info("backup in %s: `podflame hub --data %s` starts from a copy of it", dir, dir);
	return 0;
}

/* ---- copy ---- */

static void tell_copied(const struct store_copied *c, void *arg)
{
	char until[32];

	if (!is_time(arg) && !c->whole)
		return;
	time_format((uint64_t)c->until_s * NSEC_PER_SEC, until);
	log_info("%s%llu of %llu profiles, until %s; %llu were new", c->whole ? "copied: " : "",
		 (unsigned long long)c->n_done, (unsigned long long)c->n_profiles, until,
		 (unsigned long long)c->n_new);
	if (c->n_left_out)
		log_warn("%llu rows of losses, calls and deletions have no place in this store",
			 (unsigned long long)c->n_left_out);
}

/* Whether both are one directory. */
static bool is_same(const char *a, const char *b)
{
	struct stat x, y;

	return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int copy_symbols(const struct config *conf, const char *dir, struct field_error *reterr)
{
	_cleanup_free_ char *from = xasprintf("%s/symbols", dir),
			    *to = xasprintf("%s/symbols", conf->data_dir);
	size_t n = 0;
	int r = symbols_copy(from, to, &n, reterr);

	if (!r)
		log_info("%zu symbol files copied", n);
	return r;
}

static void remove_dir(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;

	while (d && (e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	rmdir(path);
}

/* cache: a directory of this process: a hub may be using data_dir. */
static int upload_into(const struct config *conf, struct store *store, const char *from,
		       const char *cache, struct field_error *reterr)
{
	const struct symbols_config c = {
		.dir = cache, .max_bytes = conf->symbols_max_bytes, .store = store};
	struct symbols *symbols = NULL;
	size_t n = 0;
	int r = symbols_open(&c, &symbols, reterr);

	if (r)
		return r;
	r = symbols_copy_into(from, symbols, &n, reterr);
	if (!r)
		log_info("%zu symbol files copied", n);
	symbols_close(symbols);
	return r;
}

/* Into a store that hubs share: they may use it meanwhile. */
static int upload_symbols(const struct config *conf, const struct store_config *to, const char *dir,
			  struct field_error *reterr)
{
	_cleanup_free_ char *from = xasprintf("%s/symbols", dir),
			    *cache = xasprintf("%s/symbols-copy", conf->data_dir);
	_cleanup_close_ int lock = -1;
	struct store *store = NULL;
	int r = mkdir_parents(cache, 0700);

	if (r)
		return field_error_set(reterr, "data_dir", "%s: %s", cache, strerror(-r));
	r = hub_data_dir_lock(cache, &lock, reterr);
	if (r)
		return r;
	r = store_open(to, &store, reterr);
	if (!r)
		r = upload_into(conf, store, from, cache, reterr);
	store_close(store);
	remove_dir(cache);
	return r;
}

/* A store on this machine's disk: no hub may use it meanwhile. The symbol files go there, too. */
static int take_data_dir(const struct config *conf, const char *dir, int *ret_lock,
			 struct field_error *reterr)
{
	int r = mkdir_parents(conf->data_dir, 0700);

	if (r)
		return field_error_set(reterr, "data_dir", "%s: %s", conf->data_dir, strerror(-r));
	if (is_same(dir, conf->data_dir))
		return field_error_set(reterr, dir, "is the directory of the store itself");
	r = hub_data_dir_lock(conf->data_dir, ret_lock, reterr);
	return r ? r : copy_symbols(conf, dir, reterr);
}

int hub_copy_from(const struct config *conf, const char *dir, struct field_error *reterr)
{
	const struct store_config from = {.kind = "sqlite", .path = dir};
	struct store_config to = hub_store_config(conf);
	uint64_t next_ns = now_mono_ns() + TELL_NS;
	_cleanup_close_ int lock = -1;
	int r = 0;

	to.own_cluster = conf->cluster_name;
	if (streq(to.kind, "sqlite"))
		r = take_data_dir(conf, dir, &lock, reterr);
	else if (streq(to.kind, "clickhouse"))
		r = upload_symbols(conf, &to, dir, reterr);
	else
		r = field_error_set(reterr, "store.kind", "%s keeps no profiles", to.kind);
	return r ?: store_copy(&from, &to, tell_copied, &next_ns, reterr);
}
