import type { Unsubscribe } from './listeners.ts'
import type { Mirror } from './mirror.ts'

/** Subscribes to changes of a state; `select` to changes of what a selector finds in it. */
export interface StateSubscription<State> {
  (callback: (state: State, previous: State) => void): Unsubscribe
  select<Selected>(
    selector: (state: State) => Selected,
    callback: (selected: Selected, previous: Selected) => void,
  ): Unsubscribe
}

/** The subscription to the state of a mirror. */
export function stateSubscription<State>(
  mirror: Pick<Mirror, 'onState' | 'state'>,
): StateSubscription<State> {
  const subscribe = (callback: (state: State, previous: State) => void): Unsubscribe =>
    mirror.onState.add(callback as (state: unknown, previous: unknown) => void)
  return Object.assign(subscribe, {
    select<Selected>(
      selector: (state: State) => Selected,
      callback: (selected: Selected, previous: Selected) => void,
    ): Unsubscribe {
      let current = selector(mirror.state as State)
      return subscribe((state) => {
        const previous = current
        current = selector(state)
        if (!Object.is(current, previous)) callback(current, previous)
      })
    },
  })
}
