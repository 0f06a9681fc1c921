// SPDX-License-Identifier: Apache-2.0
import { options, render } from 'preact';
import './style.css';
import { App } from './views/app';
import { Guard } from './views/guard';

// what an answer lets the page ask next goes out before the page is rendered again
options.debounceRendering = (renderAll) => void setTimeout(renderAll);
render(<Guard what="what it has"><App /></Guard>, document.getElementById('app')!);
