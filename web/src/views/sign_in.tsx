// SPDX-License-Identifier: Apache-2.0
// Asks for a token, over the page, which keeps all that it shows and all that is typed into it.
import { useLayoutEffect, useRef } from 'preact/hooks';
import { setToken } from '../api/hub';

interface Props {
  why: string | null; // null: there is no need
  hint: string; // the command that prints a token
  onSignIn: () => void;
}

export function SignIn({ why, hint, onSignIn }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const token = useRef<HTMLInputElement>(null);
  const submit = (e: Event): void => {
    e.preventDefault(); // which would close it also if the token is refused at once
    setToken(token.current!.value);
    token.current!.value = '';
    dialog.current!.close();
    onSignIn();
  };

  useLayoutEffect(() => {
    if (why === null) dialog.current!.close();
    else if (!dialog.current!.open) dialog.current!.showModal();
  }, [why]);
  return (
    <dialog id="sign-in" ref={dialog} aria-labelledby="sign-in-title">
      <form id="sign-in-form" onSubmit={submit}>
        <h2 id="sign-in-title">Sign in</h2>
        <p id="sign-in-why" class="muted">{why}</p>
        <p>
          A token of a service account that may see profiles. Put the namespace and the name of the
          account into this command:
        </p>
        <code id="token-hint">{hint}</code>
        <input
          type="password"
          id="token"
          ref={token}
          autocomplete="off"
          placeholder="paste the token"
          required
          aria-label="token"
        />
        <button>Sign in</button>
      </form>
    </dialog>
  );
}
