// SPDX-License-Identifier: Apache-2.0
import type { ComponentChildren } from 'preact';
import { Explained } from './explained';

interface Props {
  id: string;
  isOn: boolean;
  onChange: (isOn: boolean) => void;
  title?: string;
  children: ComponentChildren;
}

export const Check = ({ id, isOn, onChange, title = '', children }: Props) => (
  <Explained text={title}>
    <label>
      <input
        type="checkbox"
        id={id}
        checked={isOn}
        onChange={(e) => onChange(e.currentTarget.checked)}
      />{' '}
      {children}
    </label>
  </Explained>
);
