/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the role for a verb. The only file that knows both the node's and the hub's side. */
#include "cli/cli.h"
#include "hub/hub.h"
#include "lib/loop/health.h"
#include "node/confine/confine.h"
#include "node/node.h"
#include "node/parse/parse.h"

#include <argp.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

struct role {
	const char *verb, *doc;
	bool node, hub, needs_kube;
};

static const struct role roles[] = {
	{"agent",
	 "Profiles the selected pods of this node and sends the profiles to the hub.\v"
	 "Runs in the DaemonSet podflame-agent. Keys of the configuration: docs/config.md.",
	 true, false, true},
	{"hub",
	 "Receives profiles and stores them, answers queries, serves the page, writes the status "
	 "of targets.\v"
	 "Runs in the Deployment podflame-hub. Keys of the configuration: docs/config.md.",
	 false, true, true},
	{"local",
	 "Runs agent and hub in one process, for one machine: page and API on 127.0.0.1:20416.\v"
	 "Without a configuration it profiles processes whose name begins with podflame. To select "
	 "others, use DeepFlow's key static_config.ebpf.on-cpu-profile. Keys of the configuration: "
	 "docs/config.md.",
	 true, true, false},
};

struct main_options {
	const char *config, *data, *backup, *copy_from;
	bool migrate, dry_run;
};

enum { OPT_MIGRATE = 256, OPT_DRY_RUN, OPT_BACKUP, OPT_COPY_FROM };
/* The first ones are for `podflame hub` only. */
#define N_HUB_OPTIONS 4
static const struct argp_option option_list[] = {
	{"migrate", OPT_MIGRATE, NULL, 0,
	 "make or change the tables of the store, print the SQL, and end (docs/clickhouse.md)", 0},
	{"dry-run", OPT_DRY_RUN, NULL, 0, "with --migrate: print the SQL, run nothing", 0},
	{"backup", OPT_BACKUP, "DIR", 0,
	 "copy the SQLite store and the uploaded symbols of the directory for state into the new "
	 "directory DIR, also while a hub runs, and end",
	 0},
	{"copy-from", OPT_COPY_FROM, "DIR", 0,
	 "copy the SQLite store in DIR into the configured store, but not what is there already, "
	 "and end",
	 0},
	{"config", 'c', "FILE", 0, "configuration file (YAML)", 0},
	{"data", 'd', "DIR", 0,
	 "directory for state (default: data_dir of the configuration, /var/lib/podflame)", 0},
	{0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct main_options *o = state->input;

	switch (key) {
	case 'c':
		o->config = arg;
		return 0;
	case 'd':
		o->data = arg;
		return 0;
	case OPT_MIGRATE:
		o->migrate = true;
		return 0;
	case OPT_DRY_RUN:
		o->dry_run = true;
		return 0;
	case OPT_BACKUP:
		o->backup = arg;
		return 0;
	case OPT_COPY_FROM:
		o->copy_from = arg;
		return 0;
	case ARGP_KEY_END:
		if (o->dry_run && !o->migrate)
			argp_error(state, "--dry-run is for --migrate only");
		if (o->migrate + (o->backup != NULL) + (o->copy_from != NULL) > 1)
			argp_error(state, "only one of --migrate, --backup and --copy-from");
		return 0;
	default:
		return cli_parse_other(key, arg, state);
	}
}

static void print_warnings(const struct buf *warnings)
{
	for (const char *s = warnings->data; s && *s; s += strcspn(s, "\n") + 1)
		log_warn("%.*s", (int)strcspn(s, "\n"), s);
}

static int load_config(const struct main_options *o, struct config *ret)
{
	static const char *const levels[] = {"error", "warn", "info", "debug"};
	_cleanup_buf_ struct buf warnings;
	struct field_error err = {0};

	buf_init(&warnings, 0);
	if (!o->config) {
		conf_init(ret);
	} else if (conf_load(o->config, ret, &warnings, &err)) {
		fprintf(stderr, "podflame: %s: %s\n", err.path, err.reason);
		return -EINVAL;
	}
	if (o->data) {
		free(ret->data_dir);
		ret->data_dir = xstrdup(o->data);
	}
	conf_resolve(ret);
	for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
		if (streq(levels[i], ret->log_level))
			log_set_level((enum log_level)i);
	print_warnings(&warnings);
	return 0;
}

static bool wants_kube(const struct config *c)
{
	if (!streq(c->kubernetes, "auto"))
		return streq(c->kubernetes, "on");
	return *c->kubeconfig || getenv("KUBERNETES_SERVICE_HOST");
}

static int connect_kube(struct loop *l, const struct config *c, const struct role *role,
			struct kube **ret, struct field_error *err)
{
	_cleanup_free_ char *agent =
		xasprintf("podflame-%s/%s (%s)", role->verb, PODFLAME_VERSION, c->node_name);
	struct kube_config kc = {0};
	int r;

	if (!wants_kube(c)) {
		if (!role->needs_kube)
			return 0;
		return field_error_set(err, "kubernetes",
				       "`podflame %s` needs a Kubernetes API server: run it in a "
				       "pod or set kubeconfig",
				       role->verb);
	}
	r = *c->kubeconfig ? kube_config_file(c->kubeconfig,
					      *c->kube_context ? c->kube_context : NULL, &kc, err)
			   : kube_config_in_cluster(&kc, err);
	if (!r)
		r = kube_new(l, &kc, agent, ret, err);
	kube_config_done(&kc);
	return r;
}

struct parts {
	struct loop *loop;
	struct kube *kube;
	struct hub *hub;
	struct node *node;
	bool stopping;
	/* the health pages of an agent; in a hub, the API serves these pages */
	struct health_server *health;
};

static void stopped(void *arg)
{
	struct parts *p = arg;

	loop_stop(p->loop, 0);
}

/* A hub finishes what it has begun, unless a second signal comes. */
static void stop(int signo, void *arg)
{
	struct parts *p = arg;

	log_info("%s: stopping", strsignal(signo));
	if (p->hub && !p->node && !p->stopping)
		hub_stop(p->hub, stopped, p);
	else
		loop_stop(p->loop, 0);
	p->stopping = true;
}

/* Logs why new connections go to an old address, or fail. */
static void tell_name(const char *name, const char *error)
{
	if (error)
		log_warn("the address of %s cannot be looked up: %s; new connections go to its "
			 "last known address",
			 name, error);
	else
		log_info("the address of %s can be looked up again", name);
}

/*
 * Logs a CA certificate that is ignored. If it has signed a server's certificate, that server
 * cannot be verified.
 */
static void tell_skipped(const char *bundle, unsigned nr, const char *subject, const char *why)
{
	log_warn("%s: CA certificate %u%s%s cannot be read and is ignored: %s", bundle, nr,
		 *subject ? ", " : "", subject, why);
}

/*
 * Logs a file of credentials that cannot be used. podflame continues with what it read last. If the
 * server later refuses these credentials as too old, this line is the only one that gives the
 * reason.
 */
static void tell_credentials(const char *what, const char *error)
{
	if (error)
		log_warn("Kubernetes API: %s: %s; podflame goes on with what it read last, if "
			 "anything",
			 what, error);
	else
		log_info("Kubernetes API: %s is usable again", what);
}

/*
 * Fixes the thresholds at which malloc gives memory back to the kernel. The agent reads the
 * kernel's types once, which needs 6 MB for a moment; symbols may need as much. By default, if such
 * a block is freed, glibc raises the thresholds, and then keeps as much memory for ever.
 */
static void give_memory_back(void)
{
	mallopt(M_MMAP_THRESHOLD, 256 << 10);
	mallopt(M_TRIM_THRESHOLD, 256 << 10);
}

/*
 * The agent keeps the mapped files of profiled processes open while the processes run. The soft
 * limit of 1024 files is too low for that.
 */
static void raise_file_limit(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l))
		return;
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
}

/*
 * Limits what somebody can do who takes over the agent. Threads inherit both limits, so this comes
 * before the first one. A hub in the same process would need more.
 */
static void confine(const struct config *c)
{
	const char *dirs[] = {c->spool_dir, c->debuginfod_cache};
	const char *paths[ARRAY_SIZE(dirs)] = {0};

	for (size_t i = 0; i < ARRAY_SIZE(dirs);
	     i++) /* a directory that cannot be made stays out */
		if (*dirs[i] && confine_directory(dirs[i], c->run_as_user) == 0)
			paths[i] = dirs[i];
	if (confine_mounts(paths, ARRAY_SIZE(paths)) < 0)
		log_warn("the agent's file systems are not read-only: %s",
			 confine_mounts_problem());
	if (c->run_as_user && confine_user(c->run_as_user) < 0)
		log_warn("the agent stays the user root: %s", confine_user_problem());
	if (confine_calls() < 0)
		log_warn("the agent's system calls are not limited: %s", confine_calls_problem());
}

static int serve_health(struct parts *p, const struct config *c, struct field_error *err)
{
	const struct health_config hc = {.address = c->health_address,
					 .port = (uint16_t)c->health_port,
					 .ready = node_ready,
					 .arg = p->node};

	return health_new(p->loop, &hc, &p->health, err);
}

static int start(struct parts *p, const struct role *role, const struct config *c,
		 struct field_error *err)
{
	struct node_config nc = {.conf = c, .local = role->hub};
	struct hub_config hc = {.conf = c, .local = role->node};
	int r = loop_new(&p->loop);

	resolve_on_change(tell_name);
	kube_on_credentials(tell_credentials);
	if (!r)
		r = loop_on_signal(p->loop, SIGTERM, stop, p);
	if (!r)
		r = loop_on_signal(p->loop, SIGINT, stop, p);
	if (!r)
		r = connect_kube(p->loop, c, role, &p->kube, err);
	hc.kube = nc.kube = p->kube;
	if (!r && role->hub)
		r = hub_new(p->loop, &hc, &p->hub, err);
	if (r || !role->node)
		return r;
	if (p->hub) {
		nc.direct = hub_ingest;
		nc.direct_arg = p->hub;
	}
	r = node_new(p->loop, &nc, &p->node, err);
	if (!r && !p->hub)
		r = serve_health(p, c, err);
	if (!r && p->hub) {
		hub_debug(p->hub, "/debug/plan", node_debug_plan, p->node);
		hub_debug(p->hub, "/debug/report", node_debug_report, p->node);
	}
	return r;
}

/*
 * Frees the node first, because the node sends its last window when it is freed. kube is freed
 * after the modules that watch with it.
 */
static void finish(struct parts *p)
{
	health_free(p->health);
	node_free(p->node);
	hub_free(p->hub);
	kube_free(p->kube);
	loop_free(p->loop);
}

static const struct argp_option *options_of(const struct role *role)
{
	return option_list + (role->hub && !role->node ? 0 : N_HUB_OPTIONS);
}

/*
 * Does what an option of `podflame hub` asks for instead of a hub. Returns whether there was one.
 */
static bool run_option(const struct main_options *o, const struct config *c, int *ret,
		       struct field_error *reterr)
{
	if (o->migrate)
		*ret = hub_migrate(c, o->dry_run, stdout, reterr);
	else if (o->backup)
		*ret = hub_backup(c, o->backup, reterr);
	else if (o->copy_from)
		*ret = hub_copy_from(c, o->copy_from, reterr);
	return o->migrate || o->backup || o->copy_from;
}

/* Logs what was wrong, if anything. */
static int ended(int r, const struct field_error *err)
{
	if (r)
		fprintf(stderr, "podflame: %s%s%s\n", err->path, *err->path ? ": " : "",
			*err->reason ? err->reason : strerror(-r));
	return r;
}

static int run_role(const struct role *role, int argc, char **argv)
{
	const struct argp argp = {options_of(role), parse_option, "", role->doc, NULL, NULL, NULL};
	_cleanup_free_ char *name = xasprintf("podflame %s", role->verb);
	struct main_options o = {0};
	struct parts parts = {0};
	struct field_error err = {0};
	struct config c;
	int r = 0;

	argv[0] = name;
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (load_config(&o, &c))
		return 2;
	if (run_option(&o, &c, &r, &err)) {
		r = ended(r, &err);
		conf_done(&c);
		return r ? 1 : 0;
	}
	raise_file_limit();
	if (role->node && !role->hub)
		confine(&c);
	r = ended(start(&parts, role, &c, &err), &err);
	if (!r)
		r = loop_run(parts.loop);
	finish(&parts);
	conf_done(&c);
	return r ? 1 : 0;
}

static int version(int argc, char **argv)
{
	if (argc > 1) {
		printf("Usage: podflame version\nPrints the version.\n");
		return streq(argv[1], "--help") ? 0 : 2;
	}
	printf("podflame %s\n", PODFLAME_VERSION);
	return 0;
}

static int completion(int argc, char **argv);

static const struct cli_verb tools[] = {
	{"record", cli_cmd_record,
	 "Profiles processes and writes the profile to a file. Needs no hub.", &cli_record_argp},
	{"query", cli_cmd_query,
	 "Asks a hub for a profile, its groups, its series or a difference: as text, a file, a "
	 "picture.",
	 &cli_query_argp},
	{"top", cli_cmd_top, "Shows the greatest functions of the last minute, as top does.",
	 &cli_top_argp},
	{"symbols", cli_cmd_symbols, "Stores symbols of stripped programs at a hub.",
	 &cli_symbols_argp},
	{"doctor", cli_cmd_doctor, "Says what podflame can profile here, and why not more.",
	 &cli_doctor_argp},
	{"completion", completion, "Prints a script that completes commands in bash or zsh.",
	 &cli_completion_argp},
	{"version", version, "Prints the version.", NULL},
};

static int completion(int argc, char **argv)
{
	struct argp role_argps[ARRAY_SIZE(roles)];
	struct cli_verb verbs[ARRAY_SIZE(roles) + ARRAY_SIZE(tools)];
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(roles); i++) {
		role_argps[i] = (struct argp){
			options_of(&roles[i]), parse_option, "", NULL, NULL, NULL, NULL};
		verbs[n++] = (struct cli_verb){roles[i].verb, NULL, roles[i].doc, &role_argps[i]};
	}
	for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
		verbs[n++] = tools[i];
	return cli_cmd_completion(argc, argv, verbs, n);
}

static int usage(int code)
{
	FILE *f = code ? stderr : stdout;

	fprintf(f, "Usage: podflame VERB [OPTION...]   (more: podflame VERB --help)\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
		fprintf(f, "  %-10s %.*s\n", roles[i].verb, (int)strcspn(roles[i].doc, "\v"),
			roles[i].doc);
	for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
		fprintf(f, "  %-10s %s\n", tools[i].name, tools[i].help);
	return code;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "--help";

	/*
	 * If memory runs out, jansson must abort. Otherwise a JSON document could lack a part and
	 * look complete.
	 */
	json_set_alloc_funcs(xmalloc, free);
	if (streq(verb, PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	if (streq(verb, "--version") || streq(verb, "-V"))
		return version(1, argv);
	if (streq(verb, "--help") || streq(verb, "help") || streq(verb, "-h"))
		return usage(argc > 1 ? 0 : 2);
	tls_on_skipped(tell_skipped);
	if (!streq(verb, "hub") &&
	    !streq(verb, "local")) /* hub and local need large blocks for each query */
		give_memory_back();
	for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
		if (streq(verb, roles[i].verb))
			return run_role(&roles[i], argc - 1, argv + 1);
	for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
		if (streq(verb, tools[i].name))
			return tools[i].run(argc - 1, argv + 1);
	fprintf(stderr, "podflame: there is no verb '%s'\n", verb);
	return usage(2);
}
