import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { ResendResult } from '../../dataplane/features/notices/dead-letters.ts'
import { type Action, type AdminModel, type Field, type RoomName, useModel } from './model.ts'
import { counted } from './table.tsx'

/** A player in a project. */
interface PlayerName {
  readonly project_id: string
  readonly sub: string
}

/** A project in an answer of control. */
export interface Project {
  readonly id: string
  readonly name: string
  readonly created_at: string
  readonly disabled_at: string | null
}

const HOUR_MS = 3_600_000
const REASON: Field = { name: 'reason', label: 'Reason for the player (optional)' }
const UNTIL: Field = {
  name: 'hours',
  label: 'Ends',
  choices: [
    ['', 'never'],
    ['1', 'in 1 hour'],
    ['24', 'in 1 day'],
    ['168', 'in 7 days'],
    ['720', 'in 30 days'],
  ],
}
const reasonOf = ({ reason = '' }: Readonly<Record<string, string>>) =>
  reason.trim() && { reason: reason.trim() }

function pathOf({ project_id: projectId, room_id: roomId }: RoomName, ...rest: string[]): string[] {
  const colon = roomId.indexOf(':')
  return ['projects', projectId, 'rooms', roomId.slice(0, colon), roomId.slice(colon + 1), ...rest]
}

export const closeRoom = (room: RoomName): Action => ({
  title: `Close the room ${room.room_id}?`,
  project: room.project_id,
  effects: [
    'Its members leave with the reason closed, onDispose runs, and its database gets the last state. A room that sleeps is opened for that. Then the store forgets the room.',
  ],
  warning: 'This cannot be undone. The next join makes a new room.',
  button: 'Close the room',
  run: async (_, { control }) => {
    await control.ask('DELETE', pathOf(room))
    return `${room.room_id} has ended.`
  },
})

export const kick = (room: RoomName, sub: string): Action => ({
  title: `Kick ${sub}?`,
  project: room.project_id,
  effects: [
    `All seats of this player in ${room.room_id} end with the reason kicked, and onLeave runs. The player can join again.`,
  ],
  button: 'Kick the player',
  fields: [REASON],
  run: async (values, { control }) => {
    const body = { sub, ...reasonOf(values) }
    const { kicked } = await control.ask<{ kicked: number }>('POST', pathOf(room, 'kick'), { body })
    return `${sub}: ${counted(kicked, 'seat')} ended.`
  },
})

/** `roomType`: a room type to which the ban can be limited. */
export const ban = ({ project_id: projectId, sub }: PlayerName, roomType?: string): Action => ({
  title: `Ban ${sub}?`,
  project: projectId,
  effects: [
    'Every session of this player is closed within a second, on every node, and new sessions and resumes are refused. A ban from one room type only ends the seats there and refuses joins.',
    'It replaces an earlier ban. It can be ended in the tab Bans.',
  ],
  button: 'Ban the player',
  fields: [...(roomType === undefined ? [] : [banFrom(roomType)]), UNTIL, REASON],
  run: async ({ type = '', hours = '', ...values }, { control, api }) => {
    const until = new Date(Date.now() + api.aheadMs + Number(hours) * HOUR_MS).toISOString()
    const body = {
      ...(hours !== '' && { until }),
      ...(type !== '' && { room_types: [type] }),
      ...reasonOf(values),
    }
    await control.ask('PUT', ['projects', projectId, 'subs', sub, 'ban'], { body })
    return `${sub} is banned.`
  },
})

/** `done` is called after the ban has ended. */
export const unban = ({ project_id: projectId, sub }: PlayerName, done: () => void): Action => ({
  title: `End the ban of ${sub}?`,
  project: projectId,
  effects: ['The player can connect and join again.'],
  button: 'End the ban',
  isHarmless: true,
  run: async (_, { control }) => {
    await control.ask('DELETE', ['projects', projectId, 'subs', sub, 'ban'])
    done()
    return `${sub} is not banned.`
  },
})

const banFrom = (roomType: string): Field => ({
  name: 'type',
  label: 'From',
  choices: [
    ['', 'the whole project'],
    [roomType, `rooms of the type ${roomType}`],
  ],
})

export const endSession = (session: {
  readonly project_id: string
  readonly session_id: string
}): Action => ({
  title: `End the session ${session.session_id}?`,
  project: session.project_id,
  effects: [
    'Its connection is closed with 4003, it cannot resume, and its members leave their rooms with the reason kicked. Its token stays valid: ban the player to keep the player out.',
  ],
  button: 'End the session',
  run: async (_, { control }) => {
    await control.ask('DELETE', ['projects', session.project_id, 'sessions', session.session_id])
    return `${session.session_id} has ended.`
  },
})

/** Disables an enabled project, or enables a disabled one. `done` is called after that. */
export function switchProject({ id, name, disabled_at: disabledAt }: Project, done: () => void): Action {
  const action = disabledAt === null ? 'disable' : 'enable'
  const run: Action['run'] = async (_, { control }) => {
    await control.ask('POST', ['projects', id, action])
    done()
    return `${name} is ${action}d.`
  }
  if (action === 'enable')
    return {
      title: `Enable the project ${name}?`,
      effects: ['Tokens of this project are issued and accepted again.'],
      button: 'Enable the project',
      isHarmless: true,
      run,
    }
  return {
    title: `Disable the project ${name}?`,
    effects: [
      'Every session of this project is closed with 4003 within a second, on every node. Until you enable it, the project gets no tokens, its tokens are refused, and no session resumes.',
      'Its rooms, keys and data stay, and timers of its rooms still run.',
    ],
    button: 'Disable the project',
    sure: `Yes, disable ${id}`,
    run,
  }
}

/** `list`: a list that control has. */
export const show = (list: 'projects' | 'bans'): Action => ({
  title: `Show the ${list}?`,
  effects: [`Control has the list of ${list}. To see it, the page needs an operator token.`],
  button: `Show the ${list}`,
  isHarmless: true,
  run: async (_, { control }) => {
    await control.ask('GET', ['projects'], { query: { limit: '1' } })
    return ''
  },
})

/** `id`: only the dead letter of this notice. `done` is called after that. */
export const resend = (projectId: string, done: () => void, id?: string): Action => ({
  title: id === undefined ? 'Resend the dead letters?' : `Resend ${id}?`,
  project: projectId,
  effects: [
    id === undefined
      ? 'The node sends the dead letters of this project to the backend again, the oldest first, until the backend does not accept one: at most 100, or those of 5 s.'
      : 'The node sends this notice to the backend again.',
    'A notice keeps its id. If the backend accepts it, it is deleted from the list.',
  ],
  button: 'Resend',
  isHarmless: true,
  isLocal: true,
  run: async (_, { api }) => {
    const body = { project_id: projectId, ...(id !== undefined && { id }) }
    const { delivered, failed } = await api.ask<ResendResult>('admin/notices/resend', {}, 'POST', body)
    done()
    const sent = `${counted(delivered, 'notice')} delivered.`
    if (failed) throw new Error(`${sent} The backend does not accept ${failed.id}: ${failed.reason}.`)
    return sent
  },
})

export function drain({ runtime, nodes }: NonNullable<AdminModel['heard']>): Action {
  const { node, totals } = runtime
  const others = nodes.filter((other) => other.alive && !other.self && !other.draining && !other.cordoned)
  return {
    title: `Drain ${node.node_id}?`,
    effects: [
      `It takes no new clients, hands over its ${counted(totals.rooms, 'room')}, moves its ${counted(totals.sessions, 'session')}, and then its process ends. This cannot be undone.`,
      ...(others.length > 0
        ? [`${counted(others.length, 'other node')} can take them; players stay in their rooms.`]
        : []),
    ],
    ...(others.length === 0 && {
      warning: 'No other node can take them: players wait for one, and rooms with durability none are lost.',
    }),
    button: 'Drain the node',
    sure: `Yes, drain ${node.node_id}`,
    isLocal: true,
    run: async (_, { api }) => {
      await api.ask('admin/drain', {}, 'POST')
      return ''
    },
  }
}

/** A button that asks the operator to confirm an action. */
export function Act({
  label,
  action,
  look = 'act',
  disabled = false,
}: {
  label: string
  action: Action
  look?: string
  disabled?: boolean
}) {
  const model = useModel()
  return (
    <button type="button" class={look} disabled={disabled} onClick={() => model.choose({ action })}>
      {label}
    </button>
  )
}

/** Dialog that describes an action before it runs, and asks for its inputs. It shows errors, and the operator can try again. */
export function ActionDialog({ action }: { action: Action }) {
  const model = useModel()
  const { title, project, effects, warning, button, isHarmless, sure, fields = [], isLocal, run } = action
  const dialog = useRef<HTMLDialogElement>(null)
  const [isSure, setIsSure] = useState(sure === undefined)
  const [isBusy, setIsBusy] = useState(false)
  const [error, setError] = useState('')
  const needsToken = !isLocal && !model.control.isOpen
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
      if (needsToken) model.control.open(values.operator_token!.trim(), values.control_url!.trim())
      const done = await run(values, model)
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
      onClose={() => model.choose({ action: undefined })}
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
        {needsToken && <ControlFields url={model.control.url} />}
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
          <button type="submit" class={isHarmless ? 'primary' : 'danger'} disabled={!isSure || isBusy}>
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

/** Inputs of the operator token and of control's address. */
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
