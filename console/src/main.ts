import './styles/tokens.css';
import './styles/base.css';
import { mount } from 'svelte';
import App from './app/App.svelte';
import { applyTheme } from './app/settings.svelte';

applyTheme();
const target = document.getElementById('app');
if (target) mount(App, { target });
