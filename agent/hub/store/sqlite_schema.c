/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema of the store's file, and how a file of an older version gets this schema. Profiles are
 * converted, or counted, in slices. Each slice is one transaction. If the hub ends between two
 * slices, the next start continues with the next slice.
 */
#include "hub/store/sqlite.h"

#include <inttypes.h>

#define RAISE_SLICE "1000" /* profiles per transaction; it also has all others of its last second */
#define COUNT_SLICE 20000  /* profiles that one transaction counts */

/*
 * Since version 2: samples that were taken inside a traced request. The rows of their profiles have
 * these samples, too.
 */
#define LINKS_SCHEMA                                                                               \
	"CREATE TABLE links(trace TEXT, span TEXT, event INT, series INT, time INT, stack INT,"    \
	" cpu INT, value INT NOT NULL, n INT NOT NULL,"                                            \
	" PRIMARY KEY(trace, span, event, series, time, stack, cpu)) WITHOUT ROWID;"               \
	"CREATE INDEX links_time ON links(time);"

/*
 * Since version 3: which profiles are snapshots (a snapshot may have no samples), which profiles
 * hold estimates, and what a stack waited for (column `wait` of stacks).
 */
#define EVENTS_SCHEMA                                                                              \
	"CREATE TABLE snapshots(event INT, series INT, time INT,"                                  \
	" PRIMARY KEY(event, series, time)) WITHOUT ROWID;"                                        \
	"CREATE TABLE estimates(time INT NOT NULL, event INT NOT NULL, series INT NOT NULL,"       \
	" ppm INT NOT NULL, error INT NOT NULL);"                                                  \
	"CREATE INDEX estimates_time ON estimates(time);"
#define STACKS_WAIT "wait INT NOT NULL DEFAULT 0"

/* Since version 5: the labels of a stack's samples, a row of tagsets; 0: they have none. */
#define STACKS_LABELS "labels INT NOT NULL DEFAULT 0"

/*
 * Since version 4: a profile row holds all its samples in a blob, and the sum of their values.
 * Until version 3, each sample was a row of `samples`.
 */
#define PROFILES_SCHEMA                                                                            \
	"CREATE TABLE profiles(key INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE,"                  \
	" time INT NOT NULL, event INT NOT NULL, series INT NOT NULL, n INT NOT NULL,"             \
	" value INT NOT NULL, samples BLOB NOT NULL);"                                             \
	"CREATE INDEX profiles_of_time ON profiles(time, event, series, n);"                       \
	"CREATE INDEX profiles_series ON profiles(event, series, time);"

/*
 * Since version 6: sums of blocks (sqlite_blocks.c). n: the number of profiles; samples: as those
 * of a profile.
 */
#define BLOCKS_SCHEMA                                                                              \
	"CREATE TABLE blocks(key INTEGER PRIMARY KEY, event INT NOT NULL, series INT NOT NULL,"    \
	" block INT NOT NULL, first_s INT NOT NULL, last_s INT NOT NULL, n INT NOT NULL,"          \
	" samples BLOB NOT NULL);"                                                                 \
	"CREATE UNIQUE INDEX blocks_series ON blocks(event, series, block);"                       \
	"CREATE INDEX blocks_block ON blocks(block);"                                              \
	"CREATE TABLE late(event INT, series INT, block INT, given_up INT NOT NULL,"               \
	" PRIMARY KEY(event, series, block)) WITHOUT ROWID;"

/* Since version 7: clusters other than the hub's own, of this start of the hub and earlier ones. */
#define CLUSTERS_SCHEMA "CREATE TABLE clusters(name TEXT PRIMARY KEY) WITHOUT ROWID;"

/*
 * Since version 8: whose bytes are in the store (sqlite_shares.c). The place of a stack: below 0,
 * others have used it, too; 0: the stack is older than this version. bytes of a series: of its
 * profiles, with what has a row for each of them, of its losses and of its links, roughly. until_s:
 * profiles of the place until then were deleted, because it had more than its share; 0: none were.
 */
#define PLACES_SCHEMA                                                                              \
	"CREATE TABLE places(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,"                   \
	" until_s INT NOT NULL DEFAULT 0);"
#define STACKS_PLACE "place INT NOT NULL DEFAULT 0"
#define SERIES_SHARE_(add)                                                                         \
	add "place INT NOT NULL DEFAULT 0" add "profiles INT NOT NULL DEFAULT 0" add               \
	    "bytes INT NOT NULL DEFAULT 0"
#define PROFILE_BYTES(samples) "(160+LENGTH(" samples "))"
#define LOSS_BYTES	       "60"
#define TRIGGER(table, when, row, sign, profiles, bytes)                                           \
	"CREATE TRIGGER " table "_" when " AFTER " when " ON " table " BEGIN UPDATE series SET "   \
	"profiles=profiles" sign profiles ", bytes=bytes" sign bytes " WHERE id=" row              \
	".series; END;"
#define SHARES_TRIGGERS                                                                            \
	TRIGGER("profiles", "INSERT", "NEW", "+", "1", PROFILE_BYTES("NEW.samples"))               \
	TRIGGER("profiles", "DELETE", "OLD", "-", "1", PROFILE_BYTES("OLD.samples"))               \
	TRIGGER("losses", "INSERT", "NEW", "+", "0", LOSS_BYTES)                                   \
	TRIGGER("losses", "DELETE", "OLD", "-", "0", LOSS_BYTES)                                   \
	TRIGGER("links", "INSERT", "NEW", "+", "0", SQ_TEXT(LINK_BYTES))                           \
	TRIGGER("links", "DELETE", "OLD", "-", "0", SQ_TEXT(LINK_BYTES))

static const char schema[] =
	"CREATE TABLE strings(id INTEGER PRIMARY KEY, s TEXT NOT NULL UNIQUE);"
	/* name, module, ... are ids of strings; 0: there is no string */
	"CREATE TABLE frames(id INTEGER PRIMARY KEY, name INT, module INT, build_id INT,"
	" address INT, file INT, line INT, kind INT, inlined INT,"
	" UNIQUE(name, module, address, build_id, file, line, kind, inlined));"
	/*
	 * last_s: when the stack was last used, rounded to an hour. So unused stacks are found
	 * without reading all profiles.
	 */
	"CREATE TABLE stacks(id INTEGER PRIMARY KEY, hash INT NOT NULL, last_s INT NOT NULL,"
	" process INT NOT NULL, thread INT NOT NULL, main INT NOT NULL, frames BLOB NOT "
	"NULL, " STACKS_WAIT ", " STACKS_LABELS ", " STACKS_PLACE ");"
	"CREATE INDEX stacks_hash ON stacks(hash);"
	"CREATE INDEX stacks_last ON stacks(last_s);"
	"CREATE TABLE tagsets(id INTEGER PRIMARY KEY, text BLOB NOT NULL UNIQUE);"
	"CREATE TABLE tags(tagset INT, key INT, value INT, PRIMARY KEY(tagset, key)) WITHOUT ROWID;"
	"CREATE TABLE series(id INTEGER PRIMARY KEY, app INT NOT NULL, pid INT NOT NULL,"
	" start_ms INT NOT NULL, tagset INT NOT NULL, first_s INT NOT NULL, last_s INT NOT "
	"NULL" SERIES_SHARE_(
		",") ", UNIQUE(tagset, app, pid, start_ms));" PROFILES_SCHEMA
		     "CREATE TABLE losses(time INT NOT NULL, start_s INT NOT NULL, event INT NOT "
		     "NULL,"
		     " series INT NOT NULL, reason INT NOT NULL, n INT NOT NULL, time_ns INT NOT "
		     "NULL);"
		     "CREATE INDEX losses_time ON losses(time);" LINKS_SCHEMA EVENTS_SCHEMA
			     BLOCKS_SCHEMA CLUSTERS_SCHEMA PLACES_SCHEMA
		     "CREATE TABLE meta(key TEXT PRIMARY KEY, value INT);" SHARES_TRIGGERS;

int store_schema_make(sqlite3 *db)
{
	char version[128];
	uint64_t seed;
	int r;

	random_bytes(&seed, sizeof(seed));
	/* auto_vacuum must be set before the first table is made; later it has no effect */
	r = store_sq_exec(
		db, "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; BEGIN IMMEDIATE");
	if (!r)
		r = store_sq_exec(db, schema);
	snprintf(version, sizeof(version),
		 "INSERT INTO meta VALUES('seed', %lld); PRAGMA user_version=%d; COMMIT",
		 (long long)(seed >> 1), SCHEMA_VERSION);
	return r ? r : store_sq_exec(db, version);
}

/* ---- 3 -> 4 ---- */

/*
 * The last second of the next slice. If fewer profiles are left than a slice has, it is the largest
 * integer. The index of the table `before` by time has the only column that this query needs. The
 * query reads the index in its order, so SQLite need not sort. Sorting could need a temporary file.
 */
#define BEFORE_UNTIL                                                                               \
	"IFNULL((SELECT time FROM before ORDER BY time LIMIT 1 OFFSET " RAISE_SLICE                \
	"), 9223372036854775807)"
/*
 * Whether the profile is the first one of its process and second. Version 3 added up the samples of
 * all profiles with the same process and second. The first of these profiles gets all the samples.
 */
#define IS_FIRST                                                                                   \
	"NOT EXISTS (SELECT 1 FROM before b WHERE b.time=p.time AND b.event=p.event AND "          \
	"b.series=p.series AND b.id<p.id)"
#define SAMPLES_OF "FROM samples s WHERE s.event=p.event AND s.series=p.series AND s.time=p.time"
/* limited to the greatest value that a writer stores */
#define WHOLE_VALUE "CAST(MIN(TOTAL(value), 9007199254740992) AS INT)"

/* Converts the oldest profiles, up to the end of the second in which the slice is full. */
static const char raise_slice[] =
	"BEGIN IMMEDIATE;"
	"INSERT INTO profiles(id, time, event, series, n, value, samples)"
	" SELECT id, time, event, series, n,"
	" IIF(" IS_FIRST ", (SELECT " WHOLE_VALUE " " SAMPLES_OF "), 0),"
	" IIF(" IS_FIRST ", (SELECT pf_pack(stack, cpu, value, n) " SAMPLES_OF "), x'')"
	" FROM before p WHERE time<=" BEFORE_UNTIL " ORDER BY time;"
	"DELETE FROM samples WHERE (event, series, time) IN"
	" (SELECT event, series, time FROM before WHERE time<=" BEFORE_UNTIL ");"
	"DELETE FROM before WHERE time<=" BEFORE_UNTIL ";"
	"COMMIT";

/*
 * Converts all profiles. Those that are not converted are in the table `before`, which is dropped
 * at the end.
 */
static int raise_profiles(sqlite3 *db)
{
	int64_t begun = 0, more = 1;
	int r = store_sq_int(db, "SELECT COUNT(*) FROM sqlite_schema WHERE name='before'", &begun);

	if (!r && !begun)
		r = store_sq_exec(
			db,
			"BEGIN IMMEDIATE; ALTER TABLE profiles RENAME TO before;" PROFILES_SCHEMA
			"COMMIT");
	while (!r && more) {
		r = store_sq_exec(db, raise_slice);
		if (!r)
			r = store_sq_int(db, "SELECT EXISTS(SELECT 1 FROM before)", &more);
	}
	return r ? r
		 : store_sq_exec(db, "BEGIN IMMEDIATE; DROP TABLE before; DROP TABLE samples;"
				     "PRAGMA user_version=4; COMMIT");
}

/* ---- 7 -> 8 ---- */

#define TAG_OF_SERIES(tag)                                                                         \
	"FROM tags t JOIN strings v ON v.id=t.value WHERE t.tagset=series.tagset AND t.key="       \
	"(SELECT id FROM strings WHERE s='" tag "')"
/* the place of a series, as store_places_put() names it */
#define PLACE_OF_SERIES                                                                            \
	"IFNULL((SELECT v.s||':' " TAG_OF_SERIES(                                                  \
		"pod_cluster") " AND v.s IN (SELECT name FROM "                                    \
			       "clusters)), '')||IIF(EXISTS(SELECT 1 " TAG_OF_SERIES(              \
				       TAG_UNVERIFIED) "), "                                       \
						       "'" STORE_PLACE_UNVERIFIED                  \
						       "', IFNULL((SELECT v.s " TAG_OF_SERIES(     \
							       "pod_ns") "), ''))"

/* The first step: everything but the counts of profiles. */
static const char begin_shares[] =
	"BEGIN IMMEDIATE;" PLACES_SCHEMA
	"ALTER TABLE stacks ADD COLUMN " STACKS_PLACE SERIES_SHARE_(
		"; ALTER TABLE series ADD COLUMN ") ";"
						    "INSERT INTO places(name) SELECT "
						    "DISTINCT " PLACE_OF_SERIES " FROM series;"
						    "UPDATE series SET place=(SELECT id FROM "
						    "places WHERE name=" PLACE_OF_SERIES ");"
						    "UPDATE series SET bytes=x.bytes FROM (SELECT "
						    "series, SUM(bytes) AS bytes FROM (SELECT "
						    "series, " LOSS_BYTES
						    " AS bytes FROM losses UNION ALL SELECT "
						    "series, " SQ_TEXT(
							    LINK_BYTES) " FROM links) GROUP BY 1) "
									"AS x WHERE "
									"x.series=series.id; "
									"COMMIT";

/* Counts the profiles whose keys are above `from`, up to `until`. */
static int count_profiles(sqlite3 *db, int64_t from, int64_t until)
{
	char sql[512];

	snprintf(sql, sizeof(sql),
		 "BEGIN IMMEDIATE;"
		 "UPDATE series SET profiles=series.profiles+x.n, bytes=series.bytes+x.bytes "
		 "FROM (SELECT series, "
		 "COUNT(*) AS n, SUM" PROFILE_BYTES(
			 "samples") " AS bytes FROM profiles WHERE "
				    "key>%1$" PRId64 " AND key<=%2$" PRId64
				    " GROUP BY series) AS x WHERE "
				    "x.series=series.id;"
				    "INSERT OR REPLACE INTO meta VALUES('counted', %2$" PRId64
				    "); COMMIT",
		 from, until);
	return store_sq_exec(db, sql);
}

/* Counts what each series has, in the order in which the profiles lie in the file. */
static int raise_shares(sqlite3 *db)
{
	int64_t begun = 0, from = 0, most = 0;
	int r = store_sq_int(db, "SELECT COUNT(*) FROM sqlite_schema WHERE name='places'", &begun);

	if (!r && !begun)
		r = store_sq_exec(db, begin_shares);
	if (!r)
		r = store_sq_int(
			db,
			"SELECT MAX(IFNULL((SELECT value FROM meta WHERE key='counted'), 0), "
			"IFNULL((SELECT MIN(key)-1 FROM profiles), 0))",
			&from);
	if (!r)
		r = store_sq_int(db, "SELECT IFNULL(MAX(key), 0) FROM profiles", &most);
	for (; !r && from < most; from += COUNT_SLICE)
		r = count_profiles(db, from, from + COUNT_SLICE);
	return r
		       ?: store_sq_exec(db, "BEGIN IMMEDIATE; DELETE FROM meta WHERE "
					    "key='counted';" SHARES_TRIGGERS
					    "PRAGMA user_version=8; COMMIT");
}

/* Brings a file of an older version to this version, one version at a time. */
int store_schema_raise(sqlite3 *db, int64_t *version)
{
	static const char *const steps[SCHEMA_VERSION] = {
		[1] = "BEGIN IMMEDIATE;" LINKS_SCHEMA "PRAGMA user_version=2; COMMIT",
		[2] = "BEGIN IMMEDIATE;" EVENTS_SCHEMA "ALTER TABLE stacks ADD COLUMN " STACKS_WAIT
		      "; PRAGMA user_version=3; COMMIT",
		[4] = "BEGIN IMMEDIATE; ALTER TABLE stacks ADD COLUMN " STACKS_LABELS
		      "; PRAGMA user_version=5; COMMIT",
		[5] = "BEGIN IMMEDIATE;" BLOCKS_SCHEMA "PRAGMA user_version=6; COMMIT",
		[6] = "BEGIN IMMEDIATE;" CLUSTERS_SCHEMA "PRAGMA user_version=7; COMMIT",
	};
	int r = 0;

	while (!r && *version >= 1 && *version < SCHEMA_VERSION) {
		if (steps[*version])
			r = store_sq_exec(db, steps[*version]);
		else
			r = *version == 3 ? raise_profiles(db) : raise_shares(db);
		if (!r)
			++*version;
	}
	return r;
}
