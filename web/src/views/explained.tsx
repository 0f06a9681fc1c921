// SPDX-License-Identifier: Apache-2.0
// A word or a control with a sentence that explains it: with the pointer, the keyboard's focus or a
// touch. Escape closes the sentence, and the pointer may move onto it.
import { type ComponentChildren, isValidElement } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';

const MARGIN_PX = 8; // to the edge of the window

interface Props {
  text: string; // '': there is nothing to explain
  /** A control, also in its label, which has the focus itself; a text gets it here. */
  children: ComponentChildren;
}

export function Explained({ text, children }: Props) {
  const id = useId();
  const whole = useRef<HTMLSpanElement>(null);
  const sentence = useRef<HTMLSpanElement>(null);
  const [isOpen, setOpen] = useState(false);

  useLayoutEffect(() => {
    if (!isOpen) return;
    place(sentence.current!, whole.current!.getBoundingClientRect());
    return describe(whole.current!.querySelector('button, input, select')!, id);
  }, [isOpen, id]);
  useLayoutEffect(() => {
    const onKey = (e: KeyboardEvent): void => {
      if (e.key !== 'Escape') return;
      e.stopPropagation(); // it closes the sentence only, not a dialog around it
      e.preventDefault();
      setOpen(false);
    };

    if (!isOpen) return;
    document.addEventListener('keydown', onKey, true);
    return () => document.removeEventListener('keydown', onKey, true);
  }, [isOpen]);
  if (!text) return <>{children}</>;
  return (
    <span
      class="explained"
      ref={whole}
      onPointerEnter={(e) => e.pointerType === 'mouse' && setOpen(true)}
      onPointerLeave={(e) => e.pointerType === 'mouse' && setOpen(false)}
      onFocusIn={() => setOpen(true)}
      onFocusOut={() => setOpen(false)}
    >
      {isValidElement(children)
        ? children
        : <button type="button" class="explained-word">{children}</button>}
      {isOpen && (
        // hidden as a part of what is around it; the description of the control it stays
        <span id={id} role="tooltip" class="explanation" ref={sentence} aria-hidden="true">
          {text}
        </span>
      )}
    </span>
  );
}

function describe(control: Element, id: string): () => void {
  control.setAttribute('aria-describedby', id);
  return () => control.removeAttribute('aria-describedby');
}

/** Below the word, or above it where there is no room, and inside the window. */
function place(sentence: HTMLElement, { left, top, bottom }: DOMRect): void {
  const { offsetWidth: width, offsetHeight: height } = sentence;
  const isBelow = bottom + height + MARGIN_PX <= innerHeight || top < height;

  sentence.style.left = `${Math.max(MARGIN_PX, Math.min(left, innerWidth - width - MARGIN_PX))}px`;
  sentence.style.top = `${isBelow ? bottom : top - height}px`;
}
