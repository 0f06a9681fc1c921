/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame completion: prints a script by which bash or zsh complete verbs, options and values. It
 * is made of the same tables (struct argp) that parse the options and print --help.
 */
#include "cli/cli.h"
#include "cli/query.h"
#include "hub/query/query.h"
#include "lib/profile/profile.h"

#include <ctype.h>
#include <stdlib.h>

/* ---- values of options: the option's argument says which ---- */

static void put_word(struct buf *out, const char *word)
{
	buf_printf(out, "%s%s", out->len ? " " : "", word);
}

static void put_events(struct buf *out)
{
	PROFILE_EACH_EVENT (e)
		put_word(out, profile_event_info(e)->name);
}

static void put_sampled_events(struct buf *out)
{
	PROFILE_EACH_EVENT (e)
		if (profile_event_info(e)->spec_field)
			put_word(out, profile_event_info(e)->name);
}

static void put_formats(struct buf *out)
{
	for (int f = 0; f < _FORMAT_MAX; f++)
		put_word(out, cli_query_format_name((enum query_format)f));
}

/* The tags by which the hub groups. Labels of pods have any names, so they are not among them. */
static void put_tags(struct buf *out)
{
	size_t n;
	const struct tag_info *tags = query_tag_table(&n);

	for (size_t i = 0; i < n; i++)
		if (tags[i].stored && !tags[i].canonical && !str_has_suffix(tags[i].name, ".") &&
		    query_tag_can_group(tags[i].name, false))
			put_word(out, tags[i].name);
}

static const struct {
	const char *arg;
	void (*put)(struct buf *out); /* NULL: files */
} values[] = {
	{"EVENT", put_events},	 {"SAMPLED_EVENT", put_sampled_events},
	{"FORMAT", put_formats}, {"TAG", put_tags},
	{"FILE", NULL},		 {"DIR", NULL},
};

/*
 * Returns the words that the value can be, with spaces between; the caller frees them. NULL: it is
 * free text. *ret_files: it is a file or a directory.
 */
static char *words_of(const char *arg, bool *ret_files)
{
	struct buf words = {0};

	*ret_files = false;
	for (size_t i = 0; arg && i < ARRAY_SIZE(values); i++) {
		if (!streq(values[i].arg, arg))
			continue;
		*ret_files = !values[i].put;
		if (values[i].put)
			values[i].put(&words);
	}
	return words.len ? buf_steal(&words) : NULL;
}

/* ---- options and arguments of a verb ---- */

struct cli_option {
	const char *name; /* the long name */
	char letter;	  /* the short name; 0: none */
	const char *arg;  /* NULL: the option has no value */
	const char *doc;
};

typedef void option_fn(const struct cli_option *o, struct buf *out);

static void each_own_option(const struct argp *argp, option_fn *fn, struct buf *out)
{
	const struct argp_option *base = argp->options;

	for (const struct argp_option *o = argp->options; o && (o->name || o->key); o++) {
		if (!(o->flags & OPTION_ALIAS))
			base = o;
		fn(&(struct cli_option){o->name, isprint(o->key) ? (char)o->key : '\0', base->arg,
					base->doc},
		   out);
	}
}

/* Calls fn for each option of the verb, also for those of its children and of argp itself. */
static void each_option(const struct cli_verb *v, option_fn *fn, struct buf *out)
{
	if (v->argp)
		each_own_option(v->argp, fn, out);
	for (const struct argp_child *c = v->argp ? v->argp->children : NULL; c && c->argp; c++)
		each_own_option(c->argp, fn, out);
	fn(&(struct cli_option){"help", '\0', NULL, "print the options"}, out);
}

/*
 * Adds the words that the verb's first argument can be: each line of args_doc begins with one, or
 * with the name of a value.
 */
static void put_first_words(const struct cli_verb *v, struct buf *out)
{
	const char *line = v->argp ? v->argp->args_doc : NULL;

	while (line && *line) {
		size_t n = strcspn(line, " \n");

		if (islower((unsigned char)*line))
			buf_printf(out, "%s%.*s", out->len ? " " : "", (int)n, line);
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
}

static bool takes_files(const struct cli_verb *v)
{
	return v->argp && v->argp->args_doc && strstr(v->argp->args_doc, "FILE");
}

/* ---- bash ---- */

static void put_bash_name(const struct cli_option *o, struct buf *out)
{
	if (o->name)
		buf_printf(out, " --%s", o->name);
}

/* The case for an option that has a value. */
static void put_bash_value(const struct cli_option *o, struct buf *out)
{
	bool files;
	_cleanup_free_ char *words = words_of(o->arg, &files);

	if (!o->arg)
		return;
	buf_puts(out, "        ");
	if (o->letter)
		buf_printf(out, "-%c%s", o->letter, o->name ? "|" : "");
	if (o->name)
		buf_printf(out, "--%s", o->name);
	if (words)
		buf_printf(out, ") words='%s' ;;\n", words);
	else
		buf_printf(out, ") %s ;;\n", files ? "files=1" : "return");
}

static void put_bash_verb(const struct cli_verb *v, struct buf *out)
{
	_cleanup_buf_ struct buf first = {0};

	put_first_words(v, &first);
	buf_printf(out, "    %s)\n        options='", v->name);
	each_option(v, put_bash_name, out);
	buf_puts(out, "'\n");
	if (first.len)
		buf_printf(out, "        [ \"$COMP_CWORD\" = 2 ] && words='%s'\n", first.data);
	if (takes_files(v))
		buf_puts(out, "        [ \"$COMP_CWORD\" -gt 2 ] && files=1\n");
	buf_puts(out, "        case $before in\n");
	each_option(v, put_bash_value, out);
	buf_puts(out, "        esac ;;\n");
}

static void put_bash(const struct cli_verb *verbs, size_t n, struct buf *out)
{
	buf_puts(out,
		 "# Completion of podflame for bash: podflame completion bash\n"
		 "_podflame() {\n"
		 "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
		 "    local options='' words='' files=''\n"
		 "    COMPREPLY=()\n"
		 "    # bash takes --option=value apart at the equals sign\n"
		 "    if [ \"$word\" = = ]; then\n"
		 "        word=\n"
		 "    elif [ \"$before\" = = ]; then\n"
		 "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
		 "    fi\n"
		 "    case $((COMP_CWORD > 1)) in\n"
		 "    0) words='");
	for (size_t i = 0; i < n; i++)
		buf_printf(out, "%s%s", i ? " " : "", verbs[i].name);
	buf_puts(out, "' ;;\n    *) case ${COMP_WORDS[1]} in\n");
	for (size_t i = 0; i < n; i++)
		put_bash_verb(&verbs[i], out);
	buf_puts(out, "    esac ;;\n"
		      "    esac\n"
		      "    case $word in -*) words=$options files='' ;; esac\n"
		      "    if [ -n \"$files\" ]; then\n"
		      "        compopt -o filenames 2>/dev/null\n"
		      "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
		      "    else\n"
		      "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
		      "    fi\n"
		      "}\n"
		      "complete -F _podflame podflame\n");
}

/* ---- zsh ---- */

/* Adds text for a word in single quotes in which zsh gives a meaning to some characters. */
static void put_zsh_text(const char *text, struct buf *out)
{
	for (; *text && *text != '\v'; text++)
		if (*text == '\'')
			buf_puts(out, "'\\''");
		else if (strchr("[]:\\", *text))
			buf_printf(out, "\\%c", *text);
		else
			buf_putc(out, *text == '\n' ? ' ' : *text);
}

static void put_zsh_value(const char *arg, struct buf *out)
{
	bool files;
	_cleanup_free_ char *words = words_of(arg, &files);

	buf_putc(out, ':');
	put_zsh_text(arg, out);
	if (words)
		buf_printf(out, ":(%s)", words);
	else
		buf_puts(out, !files ? ": " : streq(arg, "DIR") ? ":_files -/" : ":_files");
}

/* One option: both of its names, what it does, its value. */
static void put_zsh_option(const struct cli_option *o, struct buf *out)
{
	buf_puts(out, " \\\n        ");
	if (o->letter && o->name)
		buf_printf(out, "'(-%c --%s)'{-%c%s,--%s%s}", o->letter, o->name, o->letter,
			   o->arg ? "+" : "", o->name, o->arg ? "=" : "");
	else if (o->name)
		buf_printf(out, "--%s%s", o->name, o->arg ? "=" : "");
	else
		buf_printf(out, "-%c%s", o->letter, o->arg ? "+" : "");
	buf_puts(out, "'[");
	put_zsh_text(o->doc, out);
	buf_putc(out, ']');
	if (o->arg)
		put_zsh_value(o->arg, out);
	buf_putc(out, '\'');
}

static void put_zsh_verb(const struct cli_verb *v, struct buf *out)
{
	_cleanup_buf_ struct buf first = {0};

	put_first_words(v, &first);
	buf_printf(out, "    %s) _arguments -s", v->name);
	each_option(v, put_zsh_option, out);
	if (first.len)
		buf_printf(out, " \\\n        '1:what to do:(%s)'", first.data);
	if (takes_files(v))
		buf_puts(out, " \\\n        '*:file:_files'");
	buf_puts(out, " ;;\n");
}

static void put_zsh(const struct cli_verb *verbs, size_t n, struct buf *out)
{
	buf_puts(out, "#compdef podflame\n"
		      "# Completion of podflame for zsh: podflame completion zsh\n"
		      "_podflame() {\n"
		      "    local -a verbs=(");
	for (size_t i = 0; i < n; i++) {
		buf_printf(out, "\n        '%s:", verbs[i].name);
		put_zsh_text(verbs[i].help, out);
		buf_putc(out, '\'');
	}
	buf_puts(out, ")\n"
		      "    if (( CURRENT == 2 )); then\n"
		      "        _describe verb verbs\n"
		      "        return\n"
		      "    fi\n"
		      "    shift words\n"
		      "    (( CURRENT-- ))\n"
		      "    case $words[1] in\n");
	for (size_t i = 0; i < n; i++)
		put_zsh_verb(&verbs[i], out);
	buf_puts(out, "    esac\n"
		      "}\n"
		      "# in a directory of $fpath this file is the function itself\n"
		      "if [ \"$funcstack[1]\" = _podflame ]; then\n"
		      "    _podflame \"$@\"\n"
		      "else\n"
		      "    compdef _podflame podflame\n"
		      "fi\n");
}

/* ---- the verb ---- */

typedef void shell_fn(const struct cli_verb *verbs, size_t n, struct buf *out);

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	shell_fn **shell = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		if (*shell)
			argp_error(state, "'%s' is not expected here", arg);
		*shell = streq(arg, "bash") ? put_bash : streq(arg, "zsh") ? put_zsh : NULL;
		if (!*shell)
			argp_error(state, "'%s' is not one of bash, zsh", arg);
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "say for which shell: bash or zsh");
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const struct argp cli_completion_argp = {
	NULL,
	parse_option,
	"bash\nzsh",
	"Prints a script by which a shell completes verbs, options and values.\v"
	"bash: source <(podflame completion bash), in ~/.bashrc\n"
	"zsh: source <(podflame completion zsh), in ~/.zshrc after compinit",
	NULL,
	NULL,
	NULL};

int cli_cmd_completion(int argc, char **argv, const struct cli_verb *verbs, size_t n)
{
	static char name[] = "podflame completion";
	_cleanup_buf_ struct buf out = {0};
	shell_fn *shell = NULL;
	int r;

	argv[0] = name;
	argp_err_exit_status = 2;
	argp_parse(&cli_completion_argp, argc, argv, 0, NULL, &shell);
	shell(verbs, n, &out);
	fwrite(out.data, 1, out.len, stdout);
	r = cli_flush();
	if (r && r != -EPIPE)
		fprintf(stderr, "podflame completion: cannot print: %s\n", strerror(-r));
	return r ? 1 : 0;
}
