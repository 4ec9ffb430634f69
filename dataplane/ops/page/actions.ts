import type { ResendResult } from '../../notices/operations.ts'
import { counted, type RoomName } from './format.ts'
import type { AdminModel } from './model.ts'

/** Something that the page does once the operator has confirmed it. */
export interface Action {
  /** Question, such as `End the session ses_1?`. */
  readonly title: string
  /** Id of the project in which it acts. Absent: the question names the project or the node. */
  readonly project?: string
  /** What will happen, one paragraph each. */
  readonly effects: readonly string[]
  /** A paragraph that warns. */
  readonly warning?: string
  /** Text of the button. */
  readonly button: string
  readonly look: 'danger' | 'primary'
  /** A box to tick before the button works. */
  readonly sure?: string
  readonly fields?: readonly Field[]
  /** Whether it calls control, which takes the operator token. Otherwise it calls the node. */
  readonly callsControl: boolean
  /** Rejects with an error whose message is for the operator. Resolves with a sentence about what has happened; empty: none is needed. */
  readonly run: (values: Readonly<Record<string, string>>) => Promise<string>
}

/** An input of an action. */
export interface Field {
  readonly name: string
  readonly label: string
  /** Values with their texts. Absent: any text. */
  readonly choices?: readonly (readonly [value: string, text: string])[]
}

/** A player in a project. */
interface PlayerName {
  readonly project_id: string
  readonly sub: string
}

const REASON: Field = { name: 'reason', label: 'Reason for the player (optional)' }
const HOUR_MS = 3_600_000
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

export const closeRoom = ({ control }: AdminModel, room: RoomName): Action => ({
  title: `Close the room ${room.room_id}?`,
  project: room.project_id,
  effects: [
    'Its members leave with the reason closed, onDispose runs, and its database gets the last state. A room that sleeps is opened for that. Then the store forgets the room.',
  ],
  warning: 'This cannot be undone. The next join makes a new room.',
  button: 'Close the room',
  look: 'danger',
  callsControl: true,
  run: async () => {
    await control.ask('DELETE', pathOf(room))
    return `${room.room_id} is closed.`
  },
})

export const kick = ({ control }: AdminModel, room: RoomName, sub: string): Action => ({
  title: `Kick ${sub}?`,
  project: room.project_id,
  effects: [
    `All seats of this player in ${room.room_id} end with the reason kicked, and onLeave runs. The player can join again.`,
  ],
  button: 'Kick the player',
  look: 'danger',
  fields: [REASON],
  callsControl: true,
  run: async (values) => {
    const body = { sub, ...reasonOf(values) }
    const { kicked } = await control.ask<{ kicked: number }>('POST', pathOf(room, 'kick'), { body })
    return `${sub}: ${counted(kicked, 'seat')} ended.`
  },
})

/** `roomType`: a room type from which alone the player can be banned. */
export const ban = (
  { control, api }: AdminModel,
  { project_id: projectId, sub }: PlayerName,
  roomType?: string,
): Action => ({
  title: `Ban ${sub}?`,
  project: projectId,
  effects: [
    'Every session of this player is closed within a second, on every node, and new sessions and resumes are refused. A ban from one room type only ends the seats there and refuses joins.',
    'It replaces an earlier ban. The command roomful admin unban ends it.',
  ],
  button: 'Ban the player',
  look: 'danger',
  fields: [
    ...(roomType === undefined
      ? []
      : [
          {
            name: 'type',
            label: 'From',
            choices: [
              ['', 'the whole project'],
              [roomType, `rooms of the type ${roomType}`],
            ],
          } as const,
        ]),
    UNTIL,
    REASON,
  ],
  callsControl: true,
  run: async ({ type = '', hours = '', ...values }) => {
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

export const endSession = (
  { control }: AdminModel,
  session: { readonly project_id: string; readonly session_id: string },
): Action => ({
  title: `End the session ${session.session_id}?`,
  project: session.project_id,
  effects: [
    'Its connection is closed with 4003, it cannot resume, and its members leave their rooms with the reason kicked. Its token stays valid: ban the player to keep the player out.',
  ],
  button: 'End the session',
  look: 'danger',
  callsControl: true,
  run: async () => {
    await control.ask('DELETE', ['projects', session.project_id, 'sessions', session.session_id])
    return `${session.session_id} has ended.`
  },
})

/** A project, as control describes it. */
export interface Project {
  readonly id: string
  readonly name: string
  readonly created_at: string
  readonly disabled_at: string | null
}

/** Disables an enabled project, or enables a disabled one. `done` is called after that. */
export function switchProject(
  { control }: AdminModel,
  { id, name, disabled_at: disabledAt }: Project,
  done: () => void,
): Action {
  const run = (action: 'disable' | 'enable') => async () => {
    await control.ask('POST', ['projects', id, action])
    done()
    return `${name} is ${action}d.`
  }
  if (disabledAt !== null)
    return {
      title: `Enable the project ${name}?`,
      effects: ['Tokens of this project are issued and accepted again.'],
      button: 'Enable the project',
      look: 'primary',
      callsControl: true,
      run: run('enable'),
    }
  return {
    title: `Disable the project ${name}?`,
    effects: [
      'Every session of this project is closed with 4003 within a second, on every node. Until you enable it, the project gets no tokens, its tokens are refused, and no session resumes.',
      'Its rooms, keys and data stay, and timers of its rooms still run.',
    ],
    button: 'Disable the project',
    look: 'danger',
    sure: `Yes, disable ${id}`,
    callsControl: true,
    run: run('disable'),
  }
}

export const showProjects = ({ control }: AdminModel): Action => ({
  title: 'Show the projects?',
  effects: ['Control has the list of projects. To see it, the page needs an operator token.'],
  button: 'Show the projects',
  look: 'primary',
  callsControl: true,
  run: async () => {
    await control.ask('GET', ['projects'], { query: { limit: '1' } })
    return ''
  },
})

/** `id`: only the dead letter of this notice. `done` is called after that. */
export const resend = ({ api }: AdminModel, projectId: string, done: () => void, id?: string): Action => ({
  title: id === undefined ? 'Resend the dead letters?' : `Resend ${id}?`,
  project: projectId,
  effects: [
    id === undefined
      ? 'The node sends the dead letters of this project to the backend again, the oldest first, until the backend does not accept one: at most 100, or those of 5 s.'
      : 'The node sends this notice to the backend again.',
    'A notice keeps its id. If the backend accepts it, it is deleted from the list.',
  ],
  button: 'Resend',
  look: 'primary',
  callsControl: false,
  run: async () => {
    const body = { project_id: projectId, ...(id !== undefined && { id }) }
    const { delivered, failed } = await api.ask<ResendResult>('admin/notices/resend', {}, 'POST', body)
    done()
    const sent = `${counted(delivered, 'notice')} delivered.`
    if (failed) throw new Error(`${sent} The backend does not accept ${failed.id}: ${failed.reason}.`)
    return sent
  },
})

export function drain(model: AdminModel): Action {
  const { node, totals } = model.heard!.runtime
  const others = model.heard!.nodes.filter(
    (other) => other.alive && !other.self && !other.draining && !other.cordoned,
  )
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
    look: 'danger',
    sure: `Yes, drain ${node.node_id}`,
    callsControl: false,
    run: async () => {
      await model.api.ask('admin/drain', {}, 'POST')
      return ''
    },
  }
}
