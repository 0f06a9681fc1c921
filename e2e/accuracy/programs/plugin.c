/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin: after sampling has begun, opens a library whose functions call the program. With
 * -DLIBRARY, this file is the library.
 */
#include <dlfcn.h>

#include "burn.h"

#ifdef LIBRARY
__attribute__((noinline)) void plugin(uint64_t n)
{
	SPIN(n);
}

void plugin_calls(void (*f)(uint64_t), uint64_t n)
{
	f(n);
	STAY();
}
#else
static ALONE void callback(uint64_t n)
{
	SPIN(n);
}

static ALONE void before(uint64_t n)
{
	SPIN(n);
}

int main(int argc, char **argv)
{
	struct share shares[] = {{"plugin", 0}, {"callback", 0}, {"before", 0}};
	void (*plugin)(uint64_t), (*calls)(void (*)(uint64_t), uint64_t);
	uint64_t at;
	void *lib;

	(void)argc;
	burn_begin(argv);
	for (at = PROCESS_NS(); PROCESS_NS() - at < burn_budget_ns / 5;)
		BURN(shares[2], before(burn_steps()));
	lib = dlopen(argv[3], RTLD_NOW);
	if (!lib)
		return 4;
	*(void **)&plugin = dlsym(lib, "plugin");
	*(void **)&calls = dlsym(lib, "plugin_calls");
	while (burn_more())
		if (burn_random(10) < 6)
			BURN(shares[0], plugin(burn_steps()));
		else
			BURN(shares[1], calls(callback, burn_steps()));
	return burn_end(shares, 3);
}
#endif
