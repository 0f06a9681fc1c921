/* SPDX-License-Identifier: Apache-2.0 */
/* A second unit with names of its own, for dwarf_test.c. */
#include <cstring>
#include <memory>

namespace
{
inline int twice(int x)
{
	return x * 3;
}
} // namespace

struct Base {
	virtual ~Base()
	{
	}
	virtual int run(int) = 0;
};
struct First : Base {
	int run(int x) override
	{
		return twice(x) + 1;
	}
};
struct Second : Base {
	std::unique_ptr<int> p{new int(4)};
	int run(int x) override
	{
		return x / *p;
	}
};

__attribute__((noinline)) static int pick(Base &b, int x)
{
	return b.run(x);
}

int other(int c, char **v)
{
	First a;
	Second b;
	int s = 0;
	for (int i = 0; i < c; i++)
		s += pick(i & 1 ? (Base &)a : (Base &)b, strlen(v[i]));
	return s;
}
