// SPDX-License-Identifier: Apache-2.0
// shares: C++: a lambda, a template, inlined functions, a virtual call, and code below a catch.
#include <algorithm>
#include <functional>
#include <stdexcept>
#include <vector>

#include "burn.h"

namespace shop
{

template <typename T, int Depth> struct Tower {
	ALONE static void climb(T n)
	{
		if constexpr (Depth > 1)
			Tower<T, Depth - 1>::climb(n);
		else
			SPIN(static_cast<uint64_t>(n));
		STAY();
	}
};

static inline __attribute__((always_inline)) void inlined_inner(uint64_t n)
{
	SPIN(n);
}

static inline __attribute__((always_inline)) void inlined_outer(uint64_t n)
{
	inlined_inner(n);
}

ALONE void around_inlined(uint64_t n)
{
	inlined_outer(n);
	STAY();
}

struct Shape {
	virtual ~Shape() = default;
	virtual void draw(uint64_t n) = 0;
};
struct Circle : Shape {
	ALONE void draw(uint64_t n) override
	{
		SPIN(n);
	}
};

ALONE void thrower(int depth, uint64_t n)
{
	if (depth > 1)
		thrower(depth - 1, n);
	else if (n)
		throw std::runtime_error("over");
	STAY();
}

ALONE void in_catch(uint64_t n)
{
	SPIN(n);
}

ALONE void catches(uint64_t n)
{
	for (uint64_t i = 0; i < n / 400000; i++) // searching for the handler takes time, too
		try {
			thrower(10, n);
		} catch (const std::exception &) {
			in_catch(200000);
		}
}

} // namespace shop

int main(int argc, char **argv)
{
	struct share shares[] = {
		{"lambda", 0}, {"template", 0}, {"inlined", 0}, {"virtual", 0}, {"catches", 0}};
	auto lambda = [](uint64_t n) ALONE { SPIN(n); };
	shop::Circle circle;
	shop::Shape *volatile shape = &circle;

	(void)argc;
	burn_begin(argv);
	while (burn_more())
		switch (burn_random(5)) {
		case 0:
			BURN(shares[0], lambda(burn_steps()));
			break;
		case 1:
			BURN(shares[1], (shop::Tower<long, 6>::climb((long)burn_steps())));
			break;
		case 2:
			BURN(shares[2], shop::around_inlined(burn_steps()));
			break;
		case 3:
			BURN(shares[3], shape->draw(burn_steps()));
			break;
		default:
			BURN(shares[4], shop::catches(burn_steps()));
		}
	return burn_end(shares, 5);
}
