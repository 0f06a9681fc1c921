// SPDX-License-Identifier: Apache-2.0
// A page with the flame graph of Grafana and Pyroscope, for web/peers_bench.mjs.
import { createDataFrame, createTheme, FieldType } from '@grafana/data';
import { FlameGraph } from '@grafana/flamegraph';
import { createRoot } from 'react-dom/client';

// The text is JSON with a list for each field, of nodes in preorder.
window.show = (text) => {
  const fields = Object.entries(JSON.parse(text)).map(([name, values]) => ({
    name, values, type: name === 'label' ? FieldType.string : FieldType.number,
  }));

  createRoot(document.getElementById('root')).render(
    <FlameGraph data={createDataFrame({ fields })} getTheme={() => createTheme()} />,
  );
};
