// SPDX-License-Identifier: Apache-2.0
// A small window below the button that opens it, within the nearest element with a position. It
// closes by Escape, and when the user goes on elsewhere.
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { useLatest } from './latest';

interface Props {
  label: string;
  /** `isDone`: the user is done here, so the focus goes back to the button. */
  onClose: (isDone: boolean) => void;
  children: ComponentChildren;
}

/** Its parent holds the button, too, which is no "elsewhere". */
export function Popup({ label, onClose, children }: Props) {
  const popup = useRef<HTMLDivElement>(null);
  const close = useLatest(onClose);

  useLayoutEffect(() => placeBelow(popup.current!), []);
  // before the popup is painted, so that no key is too early for it
  useLayoutEffect(() => {
    const own = popup.current!.parentElement!;
    const leave = (e: Event): void => {
      if (e.target instanceof Node && !own.contains(e.target)) close.current(false);
    };
    const onKeyDown = (e: KeyboardEvent): void => {
      e.stopPropagation(); // the page's own keys are for elsewhere
      if (e.key === 'Escape') close.current(true);
    };
    own.addEventListener('keydown', onKeyDown);
    document.addEventListener('pointerdown', leave);
    document.addEventListener('focusin', leave);
    return () => {
      own.removeEventListener('keydown', onKeyDown);
      document.removeEventListener('pointerdown', leave);
      document.removeEventListener('focusin', leave);
    };
  }, []);

  return (
    <div ref={popup} class="popup" role="dialog" aria-label={label}>
      {children}
    </div>
  );
}

interface ButtonProps {
  id: string;
  text: string;
  /** What the popup has; `close` ends it, and the focus goes back to the button. */
  children: (close: () => void) => ComponentChildren;
}

/** A button with a popup. */
export function PopupButton({ id, text, children }: ButtonProps) {
  const [isOpen, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const close = (isDone: boolean): void => {
    if (isDone) button.current!.focus();
    setOpen(false);
  };

  return (
    <span>
      <button
        id={id} ref={button} aria-haspopup="dialog" aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
      >{text}</button>
      {isOpen && <Popup label={text} onClose={close}>{children(() => close(true))}</Popup>}
    </span>
  );
}

/** How far a popup stays away from the button and from the sides. */
const GAP = 4;

function placeBelow(popup: HTMLElement): void {
  const { offsetLeft, offsetTop, offsetHeight } = popup.parentElement!;
  const room = (popup.offsetParent as HTMLElement).clientWidth - popup.offsetWidth - GAP;

  popup.style.top = `${offsetTop + offsetHeight + GAP}px`;
  popup.style.left = `${Math.max(GAP, Math.min(offsetLeft, room))}px`;
}
