// SPDX-License-Identifier: Apache-2.0
import { render } from 'preact';
import './style.css';
import { App } from './views/app';

render(<App />, document.getElementById('app')!);
