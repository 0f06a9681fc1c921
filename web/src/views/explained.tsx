// SPDX-License-Identifier: Apache-2.0
// A word or a control with a sentence that explains it: with the pointer, the keyboard's focus or a
// touch. Escape closes the sentence, and the pointer may move onto it.
import { cloneElement, type ComponentChildren, isValidElement, type VNode } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';

const MARGIN_PX = 8; // to the edge of the window

interface Props {
  text: string; // '': there is nothing to explain
  /** A control, which has the focus itself; anything else gets it here. */
  children: ComponentChildren;
}

export function Explained({ text, children }: Props) {
  const id = useId();
  const whole = useRef<HTMLSpanElement>(null);
  const sentence = useRef<HTMLSpanElement>(null);
  const [isOpen, setOpen] = useState(false);

  useLayoutEffect(() => {
    if (isOpen) place(sentence.current!, whole.current!.getBoundingClientRect());
  }, [isOpen]);
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
      {described(children, isOpen ? id : undefined)}
      {isOpen && (
        // hidden as a part of what is around it; the description of the control it stays
        <span id={id} role="tooltip" class="explanation" ref={sentence} aria-hidden="true">
          {text}
        </span>
      )}
    </span>
  );
}

function described(children: ComponentChildren, id: string | undefined): VNode {
  if (isValidElement(children)) return cloneElement(children, { 'aria-describedby': id });
  return (
    <button type="button" class="explained-word" aria-describedby={id}>
      {children}
    </button>
  );
}

/** Below the word, or above it where there is no room, and inside the window. */
function place(sentence: HTMLElement, { left, top, bottom }: DOMRect): void {
  const { offsetWidth: width, offsetHeight: height } = sentence;
  const isBelow = bottom + height + MARGIN_PX <= innerHeight || top < height;

  sentence.style.left = `${Math.max(MARGIN_PX, Math.min(left, innerWidth - width - MARGIN_PX))}px`;
  sentence.style.top = `${isBelow ? bottom : top - height}px`;
}
