// SPDX-License-Identifier: Apache-2.0

// rdma_latency: requests in C++. One thread takes the completions of all the others.
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "rdma_latency.h"

namespace fabric
{
// Takes completions until it is destroyed.
class Poller
{
      public:
	explicit Poller(ibv_cq *cq) : cq(cq), thread([this] { run(); })
	{
	}
	~Poller()
	{
		stops = true;
		thread.join();
	}
	Poller(const Poller &) = delete;

	// Waits until there have been n completions since the last call.
	void await(int n)
	{
		while (taken < n)
			usleep(50);
		taken -= n;
	}

      private:
	void run()
	{
		while (!stops) {
			taken += take(cq, 16);
			usleep(50);
		}
	}

	ibv_cq *cq;
	std::atomic<bool> stops{false};
	std::atomic<int> taken{0};
	std::thread thread;
};

class Queue
{
      public:
	explicit Queue(ibv_qp *qp) : qp(qp)
	{
	}
	void put(posting &of, ibv_wr_opcode opcode, int operation)
	{
		char byte = 0;
		ibv_sge part = {reinterpret_cast<uintptr_t>(&byte), 1, 1};
		ibv_send_wr wr = {}, *bad;

		wr.wr_id = reinterpret_cast<uintptr_t>(this);
		wr.sg_list = &part;
		wr.num_sge = 1;
		wr.opcode = opcode;
		*posting_of(qp->context, qp->qp_num) = &of;
		uint64_t before = now_ns();
		WORKS(ibv_post_send(qp, &wr, &bad));
		begins(&of, operation, before, now_ns());
	}

      private:
	ibv_qp *qp;
};
} // namespace fabric

static std::unique_ptr<fabric::Queue> first, second;
static std::unique_ptr<fabric::Poller> poller;

static posting of_sends, of_writes_in_lambda, of_reads_on_second, of_of_thread;

FUNCTION(sends)
{
	takes_us(2000);
	first->put(of_sends, IBV_WR_SEND, STANDIN_SEND);
	poller->await(1);
}

FUNCTION(writes_in_lambda)
{
	auto twice = [](const std::function<void()> &f) {
		f();
		f();
	};
	takes_us(1000);
	twice([] { first->put(of_writes_in_lambda, IBV_WR_RDMA_WRITE, STANDIN_WRITE); });
	poller->await(2);
}

FUNCTION(reads_on_second)
{
	takes_us(3000);
	second->put(of_reads_on_second, IBV_WR_RDMA_READ, STANDIN_READ);
	poller->await(1);
}

FUNCTION(of_thread)
{
	takes_us(1500);
	for (int i = 0; i < 3; i++)
		first->put(of_of_thread, IBV_WR_SEND, STANDIN_SEND);
}

static void starts_thread()
{
	std::thread(of_thread).join();
	poller->await(3);
}

static void run(const char *name, void (*f)(), const posting &of)
{
	for (unsigned i = 0; i < rounds; i++)
		f();
	tell(name, &of, "RC@standin_0");
}

int main(int argc, char **argv)
{
	open_told(argc, argv);
	open_latency();
	wait_for_order();
	show_device(0);
	await_counts();
	first = std::make_unique<fabric::Queue>(make_pair(0, IBV_QPT_RC, 0));
	second = std::make_unique<fabric::Queue>(make_pair(0, IBV_QPT_RC, 0));
	poller = std::make_unique<fabric::Poller>(cqs[0]);
	run("sends", sends, of_sends);
	run("writes_in_lambda", writes_in_lambda, of_writes_in_lambda);
	run("reads_on_second", reads_on_second, of_reads_on_second);
	run("of_thread", starts_thread, of_of_thread);
	poller.reset();
	end();
}
