// SPDX-License-Identifier: Apache-2.0

// exact: in C++: the library's own waits, operators, containers.
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "exact.h"

static std::mutex mutex;
static std::condition_variable condition;

static void takes_lock()
{
	mutex.lock();
}

static void gives_lock()
{
	mutex.unlock();
}

FUNCTION(naps)
{
	std::this_thread::sleep_for(std::chrono::milliseconds(WAIT_MS));
}

FUNCTION(waits_for_lock)
{
	std::lock_guard<std::mutex> guard(mutex);
}

FUNCTION(waits_for_condition)
{
	std::unique_lock<std::mutex> guard(mutex);
	condition.wait_for(guard, std::chrono::milliseconds(WAIT_MS));
}

FUNCTION(reads_pipe)
{
	char c;
	if (read(pipe_fds[0], &c, 1) != 1)
		fail("read");
}

FUNCTION(reads_socket)
{
	char c;
	if (recv(socket_fds[0], &c, 1, 0) != 1)
		fail("recv");
}

FUNCTION(polls)
{
	poll(nullptr, 0, WAIT_MS);
}

FUNCTION(syncs)
{
	if (pwrite(disk_fd, "x", 1, 0) != 1 || fdatasync(disk_fd))
		fail("fdatasync");
}

FUNCTION(waits_for_signal)
{
	struct timespec t = {0, WAIT_MS * 1000000L};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigtimedwait(&set, nullptr, &t);
}

struct Thing {
	char x[1234];
};
struct alignas(256) Aligned {
	char x[512];
};

FUNCTION(news)
{
	Thing *one = new Thing, *more = new Thing[3];
	escaped = one, escaped = more;
	delete one;
	delete[] more;
}

FUNCTION(news_aligned)
{
	Aligned *one = new Aligned;
	escaped = one;
	delete one;
}

FUNCTION(vector_grows) // 1, 2, 4, ... 4096 elements
{
	std::vector<uint64_t> v;
	for (uint64_t i = 0; i < 4096; i++)
		v.push_back(i);
	escaped = v.data();
}

FUNCTION(map_inserts)
{
	std::map<int, int> m;
	for (int i = 0; i < 300; i++)
		m[i] = i;
	escaped = &m;
}
using Node = std::_Rb_tree_node<std::pair<const int, int>>;

FUNCTION(strings)
{
	std::string s(1000, 'x');
	escaped = s.data();
}

FUNCTION(shares)
{
	auto p = std::make_shared<Thing>();
	escaped = p.get();
}
using Shared =
	std::_Sp_counted_ptr_inplace<Thing, std::allocator<void>, std::_Lock_policy::_S_atomic>;

FUNCTION(leaks)
{
	escaped = new Thing;
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	waits("naps", "sleep", naps, 0);
	waits("waits_for_lock", "lock", waits_for_lock, 'l');
	waits("waits_for_condition", "lock", waits_for_condition, 0);
	waits("reads_pipe", "pipe", reads_pipe, 'p');
	waits("reads_socket", "socket", reads_socket, 's');
	waits("polls", "poll", polls, 0);
	waits("syncs", "disk", syncs, 0);
	waits("waits_for_signal", "other", waits_for_signal, 0);
	allocates("news", news, 4 * sizeof(Thing), 0);
	allocates("news_aligned", news_aligned, sizeof(Aligned), 0);
	allocates("vector_grows", vector_grows, 8 * 8191, 0);
	allocates("map_inserts", map_inserts, 300 * sizeof(Node), 0);
	allocates("strings", strings, 1001, 0);
	allocates("shares", shares, sizeof(Shared), 0);
	allocates("leaks", leaks, sizeof(Thing), sizeof(Thing));
	end();
}
