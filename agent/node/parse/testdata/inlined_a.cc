/* SPDX-License-Identifier: Apache-2.0 */
/* What dwarf_test.c compiles: inlined templates, lambdas, local classes, anonymous namespaces, cold code. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace
{
struct Hidden {
	int v;
	int get(int k) const
	{
		int s = 0;
		for (int i = 0; i < k; i++)
			s += i ^ v;
		return s;
	}
};
static inline int twice(int x)
{
	return std::abs(x) * 2;
}
} // namespace

namespace lib
{
namespace inner
{
static int helper(int x)
{
	return twice(x) + Hidden{x}.get(x);
}
template <class T> struct Box {
	T t;
	template <class U> U add(U u)
	{
		return u + t;
	}
};
int compute(const std::vector<int> &v)
{
	auto f = [&](int a) {
		struct Local {
			int z;
			int go()
			{
				return helper(z) + 3;
			}
		};
		return Local{a}.go() + Box<int>{a}.add(3L);
	};
	int s = 0;
	for (int x : v)
		s += f(x);
	if (s == 123456)
		throw std::runtime_error("rare");
	return s;
}
} // namespace inner
} // namespace lib

extern int other(int, char **);

int main(int c, char **v)
{
	std::vector<int> n;
	for (int i = 0; i < c * 10; i++)
		n.push_back(i * 7 % 13);
	std::sort(n.begin(), n.end(), [](int a, int b) { return twice(a) < twice(b); });
	printf("%d\n", lib::inner::compute(n));
	return other(c, v);
}
