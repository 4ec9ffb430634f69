import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { Action, Field } from './actions.ts'
import { useModel } from './model.ts'

/** Says what an action would do, before it does anything, and asks for what it needs. Errors are shown here, and the operator can try again. */
export function ActionDialog({ action }: { action: Action }) {
  const model = useModel()
  const { title, project, effects, warning, button, look, sure, fields = [], callsControl, run } = action
  const dialog = useRef<HTMLDialogElement>(null)
  const [isSure, setIsSure] = useState(sure === undefined)
  const [isBusy, setIsBusy] = useState(false)
  const [error, setError] = useState('')
  useLayoutEffect(() => {
    dialog.current!.showModal()
    dialog.current!.querySelector<HTMLElement>('input:not([type="checkbox"]), select, button')!.focus()
  }, [])
  const submit = async (event: SubmitEvent) => {
    event.preventDefault()
    const values = Object.fromEntries(new FormData(event.target as HTMLFormElement)) as Record<string, string>
    setIsBusy(true)
    setError('')
    try {
      if (callsControl && !model.control.isOpen)
        model.control.open(values.operator_token!.trim(), values.control_url!.trim())
      const done = await run(values)
      dialog.current?.close()
      model.finish(done)
    } catch (error) {
      if (!dialog.current) return model.finish(`${title} This failed: ${(error as Error).message}`)
      setIsBusy(false)
      setError((error as Error).message)
    }
  }
  return (
    <dialog
      ref={dialog}
      aria-labelledby="action-heading"
      aria-describedby="action-effects"
      onClose={() => model.act(undefined)}
    >
      <form onSubmit={submit}>
        <h2 id="action-heading">{title}</h2>
        <div id="action-effects">
          {project !== undefined && (
            <p class="soft">
              Project <code>{project}</code>
            </p>
          )}
          {effects.map((effect) => (
            <p key={effect}>{effect}</p>
          ))}
          {warning !== undefined && <p class="alarm">{warning}</p>}
        </div>
        {fields.map((field) => (
          <Input key={field.name} field={field} />
        ))}
        {callsControl && !model.control.isOpen && <ControlFields url={model.control.url} />}
        {sure !== undefined && (
          <label>
            <input type="checkbox" checked={isSure} onChange={() => setIsSure(!isSure)} /> {sure}
          </label>
        )}
        {error !== '' && (
          <p class="alarm" role="alert">
            {error}
          </p>
        )}
        <div class="buttons">
          <button type="button" onClick={() => dialog.current!.close()}>
            Cancel
          </button>
          <button type="submit" class={look} disabled={!isSure || isBusy}>
            {isBusy ? 'Waiting…' : button}
          </button>
        </div>
      </form>
    </dialog>
  )
}

function Input({ field: { name, label, choices } }: { field: Field }) {
  const id = `action-${name}`
  return (
    <div>
      <label for={id}>{label}</label>
      {choices ? (
        <select id={id} name={name}>
          {choices.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      ) : (
        <input id={id} name={name} maxLength={100} autoComplete="off" />
      )}
    </div>
  )
}

/** What the page needs to call control. */
function ControlFields({ url }: { url: string }) {
  return (
    <fieldset>
      <legend>Control</legend>
      <label>
        Operator token
        <input
          name="operator_token"
          type="password"
          autoComplete="off"
          aria-describedby="operator-token-help"
        />
      </label>
      <p id="operator-token-help" class="soft">
        One of <code>CONTROL_API_TOKENS</code>; empty if control has none. The page forgets it when you close
        or reload it.
      </p>
      <label>
        Address
        <input name="control_url" defaultValue={url} autoComplete="off" spellcheck={false} required />
      </label>
    </fieldset>
  )
}
