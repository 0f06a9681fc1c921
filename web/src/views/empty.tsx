// SPDX-License-Identifier: Apache-2.0
// Why nothing was found, and what to do next.

export function Empty({ isLocal }: { isLocal: boolean }) {
  return (
    <div id="empty">
      <p>No sample in this time for these choices.</p>
      {isLocal ? <LocalHelp /> : <ClusterHelp />}
    </div>
  );
}

const ClusterHelp = () => (
  <p>
    Is there a target (<code>kubectl get ptgt,cptgt -A</code>), or does the namespace have the
    label <code>podflame.io/profiling=enabled</code>? Is the target Ready (if not,{' '}
    <code>kubectl describe ptgt</code> says why)? Does it ask for this event? Does its workload do
    anything that the event measures?
  </p>
);

const LocalHelp = () => (
  <p>
    Does the configuration select the process (<code>static_config.ebpf</code>), and does the
    process run? <code>podflame doctor --pid PID</code> says what podflame can see of it.
  </p>
);
