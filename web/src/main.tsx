// SPDX-License-Identifier: Apache-2.0
import { render } from 'preact';
import './style.css';
import { App } from './views/app';
import { Guard } from './views/guard';

render(<Guard what="what it has"><App /></Guard>, document.getElementById('app')!);
