/* SPDX-License-Identifier: Apache-2.0 */
/* The table of reasons. .ci/check-reasons --write writes it into controller-spec/SPEC.md. */
#include "lib/reason/reason.h"

#define LABEL "podflame.io/profiling"

static const struct reason_info reasons[_REASON_MAX] = {
	[REASON_NONE] = {.name = ""},

	[REASON_INVALID_SELECTOR] =
		{
			.name = "InvalidSelector",
			.weight = WEIGHT_REFUSED,
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning = "A selector is wrong, or it has a field that the agent does not "
				   "know because the agent is older than the CRDs. The message "
				   "names the field. Nothing of the target is profiled.",
			.advice = "Correct the field, or upgrade the agent.",
		},
	[REASON_INVALID_SPEC] =
		{
			.name = "InvalidSpec",
			.weight = WEIGHT_REFUSED,
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning =
				"A field of the spec is wrong, or `containers` has a field that "
				"the agent does not know because the agent is older than the CRDs. "
				"The message names the field. Nothing of the target is profiled.",
			.advice = "Correct the field, or upgrade the agent.",
		},
	[REASON_INVALID_OBJECT] =
		{
			.name = "InvalidObject",
			.weight = WEIGHT_REFUSED,
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning = "The target's metadata is wrong; the message names the field. "
				   "Nothing of the target is profiled.",
			.advice = "Correct the field.",
		},
	[REASON_TOO_MANY_TARGETS] =
		{
			.name = "TooManyTargets",
			.weight = WEIGHT_REFUSED,
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "There are more than 4096 targets: the agent leaves out targets "
				   "of the namespaces that have the most. Or the namespace has "
				   "more ProfilingTargets than the install value "
				   "`tenant.maxTargets` allows: the agent takes the oldest ones. "
				   "The message says which.",
			.advice = "Delete targets, let one target select more pods, or raise the "
				  "install value.",
		},
	[REASON_NO_EVENT_ALLOWED] =
		{
			.name = "NoEventAllowed",
			.weight = WEIGHT_REFUSED,
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "The install value `tenant.allowedEvents` has none of the "
				   "events of the ProfilingTarget. Nothing of the target is "
				   "profiled.",
			.advice = "Ask for another event, or add the event to the install value.",
		},

	[REASON_NODE_UNKNOWN] =
		{
			.name = "NodeUnknown",
			.weight = WEIGHT_STATE,
			.audience = AUDIENCE_NOBODY,
			.meaning = "The target has a `nodeSelector`, and the agent does not know "
				   "the labels of its node yet.",
		},
	[REASON_NODE_NOT_SELECTED] =
		{
			.name = "NodeNotSelected",
			.weight = WEIGHT_STATE,
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning = "The `nodeSelector` does not select this node.",
		},
	[REASON_COMPLETED] =
		{
			.name = "Completed",
			.weight = WEIGHT_STATE,
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning = "The time of `stopAfter` is over.",
			.advice = "To profile again, raise `stopAfter` or create the target anew.",
		},
	[REASON_SUSPENDED] =
		{
			.name = "Suspended",
			.weight = WEIGHT_STATE,
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning = "The spec says `suspend: true`.",
			.advice = "To profile again, set `suspend: false`.",
		},
	[REASON_NO_PODS_MATCHED] =
		{
			.name = "NoPodsMatched",
			.weight = WEIGHT_STATE,
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning = "The selectors match no running pod.",
			.advice = "Compare the selectors with the labels: `kubectl get pods "
				  "--show-labels`.",
		},

	[REASON_NAMESPACE_DISABLED] =
		{
			.name = "NamespaceDisabled",
			.weight = WEIGHT_STATE,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "The namespace has the label `" LABEL
				   "=disabled`, which forbids profiling.",
			.advice = "Ask the owner of the namespace.",
			.about_pods =
				"the namespace's label " LABEL "=disabled forbids profiling of",
		},
	[REASON_NAMESPACE_NOT_OPTED_IN] =
		{
			.name = "NamespaceNotOptedIn",
			.weight = WEIGHT_STATE,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "A ClusterProfilingTarget matches pods of a namespace that "
				   "lacks the label `" LABEL "=enabled`.",
			.advice = "`kubectl label namespace NS " LABEL "=enabled`",
			.about_pods = "the namespace lacks the label " LABEL
				      "=enabled, which a ClusterProfilingTarget needs for",
		},
	[REASON_POD_OPTED_OUT] =
		{
			.name = "PodOptedOut",
			.weight = WEIGHT_STATE,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "A label or an annotation `" LABEL
				   "` of the pod has another value than `enabled`, which forbids "
				   "profiling.",
			.about_pods = "a label or annotation " LABEL
				      " with another value than \"enabled\" opts out",
		},
	[REASON_AMBIGUOUS_STATIC_POD] =
		{
			.name = "AmbiguousStaticPod",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "Two pods claim the same cgroup. The agent profiles neither.",
			.advice = "Look for a pod with copied annotations.",
			.about_pods = "another pod of the node claims the same cgroup as",
		},
	[REASON_TOO_MANY_PODS] =
		{
			.name = "TooManyPods",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning = "The node has more than 2000 pods. Each namespace has the same "
				   "share of them; the agent does not profile the newest pods of "
				   "a namespace with more.",
			.advice = "Run fewer pods of the namespace on the node.",
			.about_pods = "beyond the pods of one node that are profiled:",
		},
	[REASON_NO_ROOM_FOR_PODS] =
		{
			.name = "NoRoomForPods",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "The agent of a node has no room in memory for the newest pods "
				   "of a namespace in which the target selects, because the "
				   "namespace has so many or so large pods there. The agent does "
				   "not profile them, and does not know whether the target selects "
				   "them.",
			.advice = "Run fewer pods on the node, or make the objects smaller.",
			.about_pods = "the agent has no room in memory for, and so does not "
				      "profile,",
		},
	[REASON_NO_CONTAINERS_SELECTED] =
		{
			.name = "NoContainersSelected",
			.weight = WEIGHT_STATE,
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning = "`containers` selects none of the pod's containers.",
			.advice = "Compare the names.",
			.about_pods = "spec.containers selects no container of",
		},
	[REASON_UNSUPPORTED_RUNTIME] =
		{
			.name = "UnsupportedRuntime",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "The id of a container has a form that the agent does not know.",
			.about_pods = "this agent does not know the form of a container's id in",
		},
	[REASON_CONTAINERS_NOT_RUNNING] =
		{
			.name = "ContainersNotRunning",
			.weight = WEIGHT_STATE,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "No selected container has started; the message says what the "
				   "container waits for.",
			.advice = "`kubectl describe pod`",
			.about_pods = "no selected container runs yet in",
		},
	[REASON_TOO_MANY_CONTAINERS] =
		{
			.name = "TooManyContainers",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "A pod has more than 256 containers. The agent profiles no "
				   "further container of it.",
			.about_pods = "not all containers are profiled, there are too many in",
		},

	[REASON_EVENT_NOT_ALLOWED] =
		{
			.name = "EventNotAllowed",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "The install value `tenant.allowedEvents` lacks an event of the "
				   "ProfilingTarget, or the event that shows what a profile of its "
				   "`scrape` shows; the message says which. The agent profiles the "
				   "other events, and asks programs for the other profiles.",
			.advice = "Remove the event or the profile from the target, or add the "
				  "event to the install value.",
		},
	[REASON_RATE_CAPPED] =
		{
			.name = "RateCapped",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "The spec asks for a higher rate than this installation allows. "
				   "The agent samples at the rate that is allowed.",
			.advice = "Ask for a lower rate, or raise the install value that the "
				  "message names: `maxSampleHz` or `tenant.maxSampleHz`.",
		},
	[REASON_OVERHEAD_CAPPED] =
		{
			.name = "OverheadCapped",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "The ProfilingTarget has a larger `limits.overheadPercent` than "
				   "the install value `tenant.maxOverheadPercent` allows. The "
				   "agent keeps to the install value.",
			.advice = "Ask for less, or raise the install value.",
		},
	[REASON_SAMPLE_BYTES_RAISED] =
		{
			.name = "SampleBytesRaised",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "The ProfilingTarget has a smaller `sampleBytes` than the "
				   "install value `tenant.minSampleBytes` allows. The agent uses "
				   "the install value: the profile is coarser.",
			.advice = "Ask for more bytes, or lower the install value.",
		},
	[REASON_UNKNOWN_FIELD] =
		{
			.name = "UnknownField",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "The agent is older than the CRDs. It ignores the field that "
				   "the message names.",
			.advice = "Upgrade the agent.",
		},

	[REASON_NODE_WITHOUT_AGENT] =
		{
			.name = "NodeWithoutAgent",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "The target selects pods on nodes where no agent works. The "
				   "message names the nodes and, as far as the hub knows it, the "
				   "cause: the architecture, or what the agent's pod waits for (an "
				   "image). Otherwise it names the usual causes: a taint, a "
				   "selector, a quota.",
			.advice = "`kubectl -n podflame-system describe daemonset,pods`; the "
				  "install value `agent.nodeSelector`; docs/operations.md#no-data",
		},
	[REASON_PROFILER_NOT_LOADED] =
		{
			.name = "ProfilerNotLoaded",
			.weight = WEIGHT_PROBLEM,
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "The kernel of the node refuses the BPF programs; the message "
				   "says why.",
			.advice = "`podflame doctor` on the node",
		},
	[REASON_EVENT_UNSUPPORTED] =
		{
			.name = "EventUnsupported",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "The kernel of the node cannot provide an event; the message "
				   "says which event and why. The agent profiles the other events.",
			.advice = "`podflame doctor` on the node",
		},

	[REASON_CLOCK_AHEAD] =
		{
			.name = "ClockAhead",
			.weight = WEIGHT_PROBLEM,
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "The node's clock is more than five minutes ahead of the hub's, "
				   "and the hub refuses the node's profiles. The message says by "
				   "how much.",
			.advice = "Correct the clock of the node, or that of the hub's node.",
		},

	[REASON_OVER_BUDGET] =
		{
			.name = "OverBudget",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning =
				"An event would cost a container more than "
				"`limits.overheadPercent` (1, if the spec gives none), even if the "
				"agent took a part of it. The agent does not profile the event "
				"there. The message says which event, and what it would cost.",
			.advice = "Raise the limit, or ask for a coarser event.",
		},
	[REASON_ESTIMATED] =
		{
			.name = "Estimated",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning = "All of an event would cost a container more than "
				   "`limits.overheadPercent`. The agent takes a part, chosen at "
				   "random, that stands for the rest: of off-cpu some of the "
				   "waits, of mem-alloc, hbm-alloc, on-gpu, rdma and rdma-latency "
				   "spans of time (\"2 % duty\"). Profiles give the share and the "
				   "error.",
			.advice = "Raise the limit, if the error is too large.",
		},
	[REASON_RATE_LOWERED] =
		{
			.name = "RateLowered",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning = "Profiling cost more than `limits.overheadPercent`, or more "
				   "than the install value `tenant.maxOverheadPercent` if the "
				   "spec gives no limit. The agent samples at a lower rate.",
			.advice = "Raise the limit.",
		},
	[REASON_CGROUPS_NOT_SEEN] =
		{
			.name = "CgroupsNotSeen",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "A container has so many cgroups of its own that the agent does "
				   "not profile some of them. It profiles the oldest ones. Other "
				   "containers lose nothing by it.",
			.advice = "Find out what makes cgroups in the container.",
		},
	[REASON_SHARE_EXCEEDED] =
		{
			.name = "ShareExceeded",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning = "A table in the node's kernel or in the agent is nearly full, "
				   "or the agent has more samples or new processes than it can "
				   "name in time, and the pods of the namespace have more than its "
				   "share: more threads that wait (off-cpu), more sampled blocks "
				   "that are in use (mem-inuse, hbm-inuse), more launches of GPUs "
				   "(on-gpu), more RDMA requests that are under way "
				   "(rdma-latency), more different stacks or samples in a second, "
				   "more processes, programs that start, or cgroups (all events). "
				   "The profile lacks some of these or their names, or some "
				   "cgroups are not held to overheadPercent. Other namespaces "
				   "lose nothing by it.",
			.advice = "Select fewer pods, lower `sampleHz`, or raise `minBlock` or "
				  "`sampleBytes`.",
		},
	[REASON_MEMORY_NOT_SEEN] =
		{
			.name = "MemoryNotSeen",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "Not all memory of a process is in its profiles. Either the "
				   "agent did not find, or could not probe, all places where the "
				   "process allocates (a stripped libjvm, a file with an allocator "
				   "whose functions have no names). Or the process's memory grew "
				   "by 64 MiB or more, and the probes saw less than 5 % of that. "
				   "The message says which.",
			.advice = "docs/memory.md",
		},
	[REASON_GPU_MEMORY_NOT_SEEN] =
		{
			.name = "GpuMemoryNotSeen",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "Not all GPU memory of a container is in its profiles. Either "
				   "no process of the container has loaded a CUDA driver "
				   "(`libcuda.so.1`). Or the agent does not know, or could not "
				   "probe, the driver's functions that allocate. The message says "
				   "which.",
			.advice = "docs/gpu-memory.md",
		},
	[REASON_ON_GPU_NOT_SEEN] =
		{
			.name = "OnGpuNotSeen",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "Not all work of a container on GPUs is in its profiles. Either "
				   "no process of the container has loaded a CUDA driver "
				   "(`libcuda.so.1`), or a process has the driver and not the "
				   "library that reports its work (`libpodflame-cuda.so`). Or the "
				   "library cannot report: it found no libcupti, CUPTI is too old, "
				   "or another profiler has it. The message says which.",
			.advice = "docs/gpu.md",
		},
	[REASON_RDMA_NOT_SEEN] =
		{
			.name = "RdmaNotSeen",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_POD_OWNER,
			.meaning =
				"Not all that a container posts to RDMA devices is in its "
				"profiles. Either no process of the container has loaded "
				"`libibverbs.so.1`. Or the agent does not know the functions of "
				"the device's driver that post, because a process made its queue "
				"pairs before the agent probed it. Or the agent could not probe "
				"these functions. The message says which.",
			.advice = "docs/rdma.md",
		},
	[REASON_PROCESS_UNREADABLE] =
		{
			.name = "ProcessUnreadable",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "The agent waits for files of a process, on a file system that "
				   "does not answer. Frames of the process have no names until it "
				   "does.",
			.advice = "Look at the volumes of the pod.",
		},
	[REASON_UNWIND_TABLES_MISSING] =
		{
			.name = "UnwindTablesMissing",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "A file that a process maps has no unwind tables: they are "
				   "damaged, too large or over the budget. Stacks through the file "
				   "end early where its code has no frame pointers.",
		},
	[REASON_RUNTIME_NOT_WALKED] =
		{
			.name = "RuntimeNotWalked",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "The agent does not walk, or walks in part, this version or "
				   "build of a runtime (Python, Java, Lua); the message says which "
				   "and why. The frames of the process are native ones.",
		},
	[REASON_JAVA_ATTACH_FAILED] =
		{
			.name = "JavaAttachFailed",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "The target says `javaAttach: Allowed`, and a JVM did not give "
				   "the agent its perf map; the message says why. The agent does "
				   "not ask this JVM again.",
		},
	[REASON_SCRAPE_FAILED] =
		{
			.name = "ScrapeFailed",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "The target says `scrape`, and a program of a pod did not give "
				   "the agent one of its profiles, or must not be asked, or the "
				   "hub did not take the profile; the message says why.",
			.advice = "docs/scrape.md#what-may-go-wrong",
		},
	[REASON_SCRAPED_LESS] =
		{
			.name = "ScrapedLess",
			.weight = WEIGHT_NOTE,
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning = "The target says `scrape`, and to ask the program of a pod at "
				   "each interval would cost more than `limits.overheadPercent` of "
				   "the CPU time that the pod uses. The agent asks it less often.",
			.advice = "Raise the limit or the interval, or name fewer profiles.",
		},
	[REASON_RUNTIME_NOT_NAMED] =
		{
			.name = "RuntimeNotNamed",
			.weight = WEIGHT_NOTE,
			.audience = AUDIENCE_POD_OWNER,
			.meaning = "A process runs a runtime that the agent recognises, but from "
				   "which it reads no names of functions (PyPy, GraalVM native "
				   "image, OpenJ9, .NET, Mono, Ruby, PHP, Erlang, Perl, R, "
				   "Wasmtime). Profiles show its native frames. The message says "
				   "what works.",
			.advice = "If the message names a flag that writes a perf map, set that "
				  "flag.",
		},
	[REASON_GOROUTINES_NOT_SEEN] =
		{
			.name = "GoroutinesNotSeen",
			.weight = WEIGHT_NOTE,
			.audience = AUDIENCE_NOBODY,
			.meaning = "Off-cpu sees that a thread waits. A goroutine that Go's "
				   "scheduler parks (channel, mutex, timer, network) waits without "
				   "a thread, and off-cpu does not see it. It sees goroutines in "
				   "blocking system calls.",
		},

	[REASON_REASONS_OMITTED] =
		{
			.name = "ReasonsOmitted",
			.weight = WEIGHT_MINOR,
			.audience = AUDIENCE_NOBODY,
			.meaning = "A node has more reasons than the 8 that its report has room "
				   "for; the message names the others.",
			.advice = "Act on the reasons that have a message.",
		},
	[REASON_FAILURES_OMITTED] =
		{
			.name = "FailuresOmitted",
			.audience = AUDIENCE_NOBODY,
			.meaning = "A target has more failures than the 8 that its status has room "
				   "for; the message names the others.",
			.advice = "Act on the failures that have a message.",
		},

	[REASON_VALID] =
		{
			.name = "Valid",
			.condition = "Accepted",
			.meaning = "True: the agents understand the spec.",
		},
	[REASON_PROFILING] =
		{
			.name = "Profiling",
			.condition = "Ready",
			.meaning = "True: the hub has stored a sample of every event that the "
				   "agents profile, or of those that have any after 15 seconds; "
				   "the message names the others.",
		},
	[REASON_IDLE] =
		{
			.name = "Idle",
			.condition = "Ready",
			.meaning = "True: for 15 seconds there was nothing to sample.",
		},
	[REASON_PENDING] =
		{
			.name = "Pending",
			.condition = "Ready",
			.meaning = "Unknown: the hub waits for the agents.",
		},
	[REASON_WAITING_FOR_SAMPLES] =
		{
			.name = "WaitingForSamples",
			.condition = "Ready",
			.meaning =
				"Unknown: the agents sample, and have no sample of some event yet.",
		},
	[REASON_WAITING_FOR_STORE] =
		{
			.name = "WaitingForStore",
			.condition = "Ready",
			.meaning = "Unknown: the agents have samples, and the first window has not "
				   "ended.",
		},
	[REASON_REPORT_FULL] =
		{
			.name = "ReportFull",
			.condition = "Ready",
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "Unknown: no report names the target, and a full report may "
				   "have left it out. A report has room for 256 targets; it leaves "
				   "out targets of the namespaces that have the most. Or the "
				   "namespace has so many or so large targets that agents have no "
				   "room for the newest ones (`crowdedNamespaces` of a report). No "
				   "count and no failure includes them.",
		},
	[REASON_NO_ROOM] =
		{
			.name = "NoRoom",
			.condition = "Ready",
			.audience = AUDIENCE_TARGET_OWNER,
			.meaning = "Unknown: the hub has no room in memory for the target, because "
				   "the namespace has so many or so large targets. Its oldest ones "
				   "have room. The hub does not know whether agents profile this "
				   "one, and says nothing else about it.",
			.advice = "Delete targets of the namespace, or make them smaller.",
		},
	[REASON_NOT_STORED] =
		{
			.name = "NotStored",
			.condition = "Ready",
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "False: the agents have samples, and the hub has stored none of "
				   "them for 90 seconds.",
			.advice = "Look at the agents' logs.",
		},
	[REASON_NO_AGENTS] =
		{
			.name = "NoAgents",
			.condition = "Ready",
			.audience = AUDIENCE_ADMINISTRATOR,
			.meaning = "False: no node reports.",
			.advice = "Look at the DaemonSet `podflame-agent`.",
		},
	[REASON_AS_EXPECTED] =
		{
			.name = "AsExpected",
			.condition = "Degraded",
			.meaning = "False: nothing works less well than the spec asks for.",
		},
	[REASON_NOT_VERIFIED] =
		{
			.name = "NotVerified",
			.condition = "Degraded",
			.meaning = "True: in the last 10 minutes nodes sent profiles of pods of "
				   "which the hub did not learn that they were there. Perhaps they "
				   "began and ended while the hub could not watch the API server, "
				   "or ended long ago; or the node does not tell the truth. The "
				   "message names some. "
				   "Only users who may see all namespaces see these profiles.",
			.advice = "docs/security.md#who-may-send",
		},
	[REASON_NOT_STARTED] =
		{
			.name = "NotStarted",
			.condition = "Completed",
			.meaning = "False: Ready was not True yet, so the time of `stopAfter` has "
				   "not begun.",
		},
	[REASON_RUNNING] =
		{
			.name = "Running",
			.condition = "Completed",
			.meaning = "False: the message says until when the target is profiled.",
		},
	[REASON_STOP_AFTER] =
		{
			.name = "StopAfter",
			.condition = "Completed",
			.meaning = "True: the time of `stopAfter` is over.",
		},
};

const struct reason_info *reason_info(enum reason r)
{
	return &reasons[r];
}

const char *reason_name(enum reason r)
{
	return reasons[r].name;
}

enum reason reason_by_name(const char *name)
{
	for (enum reason r = REASON_NONE + 1; r < _REASON_MAX; r++)
		if (name && streq(reasons[r].name, name))
			return r;
	return REASON_NONE;
}

char *reason_about_pods(enum reason r, unsigned n_pods, const char *example)
{
	return xasprintf("%s %u pod%s (%s%s)", reasons[r].about_pods, n_pods,
			 n_pods == 1 ? "" : "s", n_pods == 1 ? "" : "for example ", example);
}
